"""The datasets and functions that the conformance tests feed to both loaders."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Squares(Dataset):
    """Index and square, as a pair of tensors."""

    def __init__(self, size: int = 10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor(int(index)), torch.full((3,), float(index) ** 2)


class Ints(Dataset):
    """The plain integer given as index."""

    def __init__(self, size: int = 10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


class Anything(Dataset):
    """Returns whatever index it is given: slices, strings, tuples, lists."""

    def __getitem__(self, index):
        return {"got": repr(index)}


class Made(Dataset):
    """Each sample is what `make` builds; the worker builds it, not the main process."""

    def __init__(self, make: Any, size: int = 2):
        self.make = make
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.make()


class Assorted(Dataset):
    """Sample n is what the n-th maker builds."""

    def __init__(self, *makers: Any):
        self.makers = makers

    def __len__(self):
        return len(self.makers)

    def __getitem__(self, index):
        return self.makers[index]()


class Copies(Dataset):
    """Index (n, k) asks for the k-th copy of what the n-th maker builds."""

    def __init__(self, *makers: Any):
        self.makers = makers

    def __getitem__(self, index):
        return self.makers[index[0]]()


class Bulk(Dataset):
    """Fetches whole batches with `__getitems__`; negative numbers show that it was used."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return [-index for index in indices]


class BulkRefused(Ints):
    """`__getitems__ = None` stands for "not supported"."""

    __getitems__ = None


class Failing(Dataset):
    """Raises `error` for index `bad`."""

    def __init__(self, error: Any, size: int = 6, bad: int = 2):
        self.error = error
        self.size = size
        self.bad = bad

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error
        return index


class Draws(Dataset):
    """What a random augmentation sees: the first draws of each global generator, and the seeds."""

    def __init__(self, size: int = 8):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        info = get_worker_info()
        return {
            "index": index,
            "torch": torch.rand(3, dtype=torch.float64),
            "numpy": np.random.rand(3),
            "random": random.random(),
            "initial_seed": torch.initial_seed() if info is not None else 0,
            "worker": (info.id, info.num_workers, info.seed) if info is not None else (0, 0, 0),
        }


class WorkerFacts(Dataset):
    """What a worker can find out about itself."""

    def __init__(self, size: int = 4):
        self.size = size
        self.mark = "as made"

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        info = get_worker_info()
        return {
            "pid": os.getpid(),
            "id": None if info is None else info.id,
            "num_workers": None if info is None else info.num_workers,
            "seed": None if info is None else info.seed,
            "dataset_is_mine": None if info is None else info.dataset is self,
            "initial_seed": torch.initial_seed(),
            "threads": torch.get_num_threads(),
            "mark": self.mark,
        }


class WithEpoch(Dataset):
    """The pattern of `set_epoch`: an attribute changed in the main process between epochs."""

    def __init__(self, size: int = 4):
        self.size = size
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.epoch * 100 + index


class Gate(Dataset):
    """Sample `bad` waits until the test opens the gate."""

    def __init__(self, event: Any, size: int = 4, bad: int = 1):
        self.event = event
        self.size = size
        self.bad = bad

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index == self.bad:
            self.event.wait(60)
        return index


class LoaderInside(Dataset):
    """Runs a loader of its own, without workers, for each sample."""

    def __init__(self, loader_class: Any):
        self.loader_class = loader_class

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return sum(int(x) for x in self.loader_class(Ints(index + 2)))


GLOBAL_MARK = "as imported"


class ReadsGlobal(Dataset):
    """A global of this module, as a script sets it in its `main()`."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return GLOBAL_MARK


class Count(IterableDataset):
    """Counts from 0 to size in every worker: not sharded."""

    def __init__(self, size: int = 7):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


class SizedCount(Count):
    """The same, with a length."""

    def __len__(self):
        return self.size


class Sharded(IterableDataset):
    """Every worker takes its share, round robin."""

    def __init__(self, size: int = 11):
        self.size = size

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.size))
        return iter(range(info.id, self.size, info.num_workers))


class SizedSharded(Sharded):
    """The same, with a length."""

    def __len__(self):
        return self.size


class Uneven(IterableDataset):
    """Worker n has `sizes[n]` samples: some end long before the others."""

    def __init__(self, *sizes: int):
        self.sizes = sizes

    def __iter__(self):
        number = get_worker_info().id
        return iter([100 * number + k for k in range(self.sizes[number])])


class Restarts(IterableDataset):
    """Counts how often its copy was started."""

    def __init__(self):
        self.starts = 0

    def __iter__(self):
        self.starts += 1
        return iter([self.starts])


class IterableDraws(IterableDataset):
    """Random numbers from a stream, with the facts of the worker."""

    def __iter__(self):
        for _ in range(3):
            yield Draws()[0]


class BreaksMidway(IterableDataset):
    """Yields two samples, then raises."""

    def __iter__(self):
        yield 0
        yield 1
        raise LookupError("the stream broke")


class BreaksAtOnce(IterableDataset):
    """`__iter__` itself raises, before any sample."""

    def __iter__(self):
        raise LookupError("no stream at all")


class Recovers(IterableDataset):
    """An iterator object that raises once and then goes on."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at == 2:
            raise LookupError("one bad record")
        if self.at > 4:
            raise StopIteration
        return self.at


def outcomes(loader: Any) -> list[Any]:
    """One entry for each batch: the batch, or the exception raised in its place."""
    iterator, found = iter(loader), []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error.with_traceback(None))


def as_given(batch):
    """Leave the list of samples alone."""
    return batch


def first_of(batch):
    """The batch is its first sample, untouched."""
    return batch[0]


def summed(batch):
    """A batch of another type than its samples."""
    return {"sum": torch.stack([row[1] for row in batch]).sum(0), "size": len(batch)}


def failing_collate(batch):
    """Refuses the batch with sample 2."""
    if 2 in batch:
        raise ArithmeticError("cannot batch this")
    return batch


def mark_dataset(worker_id):
    """Change the copy of the dataset that this worker has."""
    get_worker_info().dataset.mark = f"worker {worker_id} was here"


def reseed(worker_id):
    """The pattern that users copy from the manual."""
    np.random.seed(get_worker_info().seed % 2**32)
    random.seed(worker_id)
    torch.manual_seed(1000 + worker_id)


def failing_init(worker_id):
    """Refuses to start."""
    raise PermissionError(f"worker {worker_id} may not start")


class OwnError(Exception):
    """An exception class of the user's, with one argument."""


class TwoArgumentsError(Exception):
    """Cannot be built from one message."""

    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code
        self.text = text
