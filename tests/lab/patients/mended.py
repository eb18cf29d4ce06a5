"""Many small illnesses, one at a time: `python mended.py NAME` prints what the loop received."""

import os
import queue
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

LOCK = threading.Lock()


class Base(Dataset):
    def __len__(self):
        return 16


class Rng(Base):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __getitem__(self, i):
        return float(self.rng.random())


class Views(Base):
    def __init__(self):
        self.data = torch.zeros(16, 1000)

    def __getitem__(self, i):
        return self.data[i, :2]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(12))


class RaisingStream(IterableDataset):
    def __iter__(self):
        for i in range(12):
            yield Faulty("raise")[i]


class Locked(Base):
    def __getitem__(self, i):
        with LOCK:
            return i


class Reader(Base):
    def __init__(self):
        file = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115
        file.write(b"".join(bytes([i]) * 20_000 for i in range(64)))
        file.close()
        self.file = open(file.name, "rb")  # noqa: SIM115, PTH123
        Path(file.name).unlink()

    def __len__(self):
        return 64

    def __getitem__(self, i):
        self.file.seek(i * 20_000)
        return int(self.file.read(1)[0]) == i


class Epoch(Base):
    def __init__(self):
        self.epoch = 0

    def __getitem__(self, i):
        return self.epoch


class Mutating(Base):
    def __init__(self):
        self.data = torch.ones(16)

    def __getitem__(self, i):
        self.data[i] *= 2
        return self.data[i].clone()


class Neighbours(Base):
    def __init__(self):
        self.data = np.ones(18)

    def __getitem__(self, i):
        self.data[i : i + 2] *= 2
        return self.data[i : i + 1]


class Caching(Base):
    def __init__(self):
        self.cache = {}

    def __getitem__(self, i):
        self.cache[i] = i
        return len(self.cache)


class Lists(Base):
    def __init__(self):
        self.names = [f"name {i}" for i in range(20_000)]
        self.by_name = {f"key {i}": i for i in range(20_000)}

    def __getitem__(self, i):
        kinds = f"{type(self.names).__name__} {type(self.by_name).__name__}"
        return f"{kinds} {self.names[i]} {self.by_name[f'key {i}']}"


class Faulty(Base):
    def __init__(self, how):
        self.how = how

    def __getitem__(self, i):
        if i == 5:
            self.fail(i)
            return None
        return i

    def fail(self, i):
        if self.how == "raise":
            raise KeyError(i)
        if self.how == "stop":
            raise StopIteration
        if self.how == "exit":
            os._exit(3)
        if self.how == "local":

            class LocalError(Exception):
                pass

            raise LocalError("here")


class Odd(Base):
    def __getitem__(self, i):
        return None if i == 2 else torch.zeros(3 if i != 7 else 4)


class Threads(Base):
    def __getitem__(self, i):
        torch.set_num_threads(2)
        return torch.get_num_threads()


class Slow(Base):
    def __getitem__(self, i):
        return i


class Results(Base):
    def __getitem__(self, i):
        return (x for x in "ab") if i == 3 else i


class Nested(Base):
    def __getitem__(self, i):
        return sum(DataLoader([1, 2], num_workers=1))


class Generated(Base):
    def __init__(self):
        self.generator = torch.Generator()

    def __getitem__(self, i):
        return i


class Client:
    """Answers from a thread of its own."""

    def __init__(self, offset, *, step=1):
        self.offset, self.step = offset, step
        self.asked, self.answers = queue.Queue(), queue.Queue()
        threading.Thread(target=self.answer, daemon=True).start()

    def answer(self):
        while True:
            self.answers.put(self.asked.get() * self.step + self.offset)


class Served(Base):
    def __init__(self):
        self.client = Client(100, step=2)

    def __getitem__(self, i):
        self.client.asked.put(i)
        return self.client.answers.get()


class Short(Base):
    def __init__(self):
        self.data = list(range(10))

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return self.data[i]


def same(batch):
    return batch


def many(batch):
    return {f"f{k}": torch.full((2, k + 1), k) for k in range(30)}


def show(loader):
    print([batch.tolist() if hasattr(batch, "tolist") else batch for batch in loader], flush=True)


def views():
    for batch in DataLoader(Views(), 4, num_workers=1, collate_fn=same):
        print(max(each.untyped_storage().nbytes() for each in batch))


def kept():
    batches = list(DataLoader(Slow(), 4, num_workers=1))
    print(any(batch.is_shared() for batch in batches))


def locked():
    ready = threading.Event()

    def hold():
        with LOCK:
            ready.set()
            time.sleep(30)

    threading.Thread(target=hold, daemon=True).start()
    ready.wait()
    show(DataLoader(Locked(), 4, num_workers=1))


def epochs():
    dataset = Epoch()
    loader = DataLoader(dataset, 16, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        dataset.epoch = epoch
        show(loader)


def mutated():
    loader = DataLoader(Mutating(), 16)
    show(loader)
    show(loader)


def neighbours():
    show(DataLoader(Neighbours(), 16))


def rebuilt():
    loader = DataLoader(Slow(), 4, num_workers=1)
    print([next(iter(loader)).tolist() for _ in range(4)])


def remade():
    dataset = Slow()
    print([next(iter(DataLoader(dataset, 4, num_workers=1))).tolist() for _ in range(4)])


def rngs():
    loader = DataLoader(Rng(), 8, num_workers=2)
    first = [batch.tolist()[0] for batch in loader]
    second = [batch.tolist()[0] for batch in loader]
    print(len({*first, *second}))


def packed():
    for batch in DataLoader(Slow(), 8, num_workers=1, collate_fn=many):
        print(sorted(batch) == sorted(many(0)), all((batch[k] == v).all() for k, v in many(0).items()))


def spawned():
    show(DataLoader(Generated(), 4, num_workers=1, multiprocessing_context="spawn"))


CASES = {
    "views": views,
    "kept": kept,
    "locked": locked,
    "epochs": epochs,
    "mutated": mutated,
    "neighbours": neighbours,
    "rebuilt": rebuilt,
    "remade": remade,
    "unsent": lambda: show(DataLoader(Slow(), 4, num_workers=1)),
    "rngs": rngs,
    "packed": packed,
    "spawned": spawned,
    "stream": lambda: show(DataLoader(Stream(), 3, num_workers=2)),
    "reader": lambda: print(
        sum(not bool(ok) for batch in DataLoader(Reader(), 1, num_workers=4) for ok in batch)
    ),
    "caching": lambda: show(DataLoader(Caching(), 4, num_workers=1)),
    "large": lambda: show(DataLoader(Lists(), 8, num_workers=1)),
    "raise": lambda: show(DataLoader(Faulty("raise"), 4, num_workers=1)),
    "raising-stream": lambda: show(DataLoader(RaisingStream(), 4, num_workers=1)),
    "stop": lambda: show(DataLoader(Faulty("stop"), 4, num_workers=1)),
    "exit": lambda: show(DataLoader(Faulty("exit"), 4, num_workers=1)),
    "local": lambda: show(DataLoader(Faulty("local"), 4, num_workers=1, timeout=60)),
    "odd": lambda: show(DataLoader(Odd(), 4, num_workers=1)),
    "threads": lambda: show(DataLoader(Threads(), 4, num_workers=1)),
    "results": lambda: show(DataLoader(Results(), 4, num_workers=1, collate_fn=same, timeout=60)),
    "nested": lambda: show(DataLoader(Nested(), 4, num_workers=1)),
    "short": lambda: show(DataLoader(Short(), 4, num_workers=1)),
    "served": lambda: show(DataLoader(Served(), 8, num_workers=1)),
    "plain": lambda: show(DataLoader(Slow(), 4, num_workers=1)),
}

if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    for name in sys.argv[1:]:
        try:
            CASES[name]()
        except BaseException as error:
            print(f"{name}: {type(error).__name__}", flush=True)
