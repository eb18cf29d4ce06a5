"""Mistakes of datasets that are certain: told once, mended with cure=True, not suspected of the healthy.

Every mistake has a twin that looks like it and is right: it must stay silent.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from penstock import DataLoader
from penstock.errors import MistakeWarning

METHODS = ["fork", "spawn"]


@pytest.fixture(params=METHODS)
def method(request):
    """How workers are started."""
    return request.param


def told(make, epochs=1, between=lambda epoch: None):
    """What a loader delivers in each epoch, and the warnings it gives."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # a small machine
        loader = make()
        found = []
        for epoch in range(epochs):
            between(epoch)
            found.append([_plain(batch) for batch in loader])
    assert all(each.category is MistakeWarning for each in heard), heard
    assert all(each.filename == __file__ for each in heard)  # it points at the user's line
    return found, [str(each.message) for each in heard]


def _plain(batch):
    return [part.tolist() for part in batch] if isinstance(batch, list) else batch.tolist()


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


# ---- streams that are not divided ---------------------------------------------------------------


class Undivided(IterableDataset):
    def __init__(self, length=30):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class Pictures(IterableDataset):
    """Large samples: a few are enough."""

    def __iter__(self):
        for index in range(9):
            yield torch.full((64, 64), float(index))


class Divided(Undivided):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, self.length, info.num_workers))


class DividedByInit(Undivided):
    start = 0

    def __iter__(self):
        return iter(range(self.start, self.length, 2))


def start_at_id(worker):
    get_worker_info().dataset.start = worker


class Constant(IterableDataset):
    def __iter__(self):
        return iter([7] * 20)


class Drawn(IterableDataset):
    """Random samples, different in each worker as torch seeds it."""

    def __iter__(self):
        for _ in range(20):
            yield torch.rand(())


class SharedOrder(IterableDataset):
    """All workers draw one order, and each takes its share of it."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __iter__(self):
        info = get_worker_info()
        return iter(self.rng.permutation(30).tolist()[info.id :: info.num_workers])


@pytest.mark.parametrize("batch_size", [1, 4, 40])
def test_an_undivided_stream_is_told_once_and_left_as_it_is(method, batch_size):
    options = {"batch_size": batch_size, "num_workers": 2}
    found, heard = told(lambda: DataLoader(Undivided(), multiprocessing_context=method, **options), epochs=2)
    assert found[0] == [_plain(batch) for batch in TorchLoader(Undivided(), **options)]
    assert found[0] == found[1]
    assert heard == [
        "[PS301] every worker yields the same samples: the first 16 of all 2 workers are equal, so an epoch "
        "brings each sample 2 times. Let `__iter__` yield this worker's share, as "
        "`torch.utils.data.get_worker_info()` tells, or pass cure=True."
    ]


def test_few_large_samples_are_enough():
    _, heard = told(lambda: DataLoader(Pictures(), batch_size=2, num_workers=3))
    assert [each[:7] for each in heard] == ["[PS301]"]
    assert "the first 4 of all 3 workers" in heard[0]


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Divided(), {}),
        (DividedByInit(), {"worker_init_fn": start_at_id}),
        (Constant(), {}),
        (Undivided(1), {}),
        (Undivided(0), {}),
        (Drawn(), {}),
        (SharedOrder(), {}),
        (Undivided(), {"num_workers": 1}),
    ],
    ids=["divided", "by init", "constant", "one sample", "empty", "drawn", "shared order", "one worker"],
)
@pytest.mark.parametrize("cure", [False, True])
def test_healthy_streams_are_not_suspected(dataset, options, cure):
    options = {"num_workers": 2, "batch_size": 3, **options}
    found, heard = told(lambda: DataLoader(dataset, cure=cure, generator=seeded(), **options), epochs=2)
    expected, _ = told(lambda: TorchLoader(dataset, generator=seeded(), **options), epochs=2)
    assert (found, heard) == (expected, [])


def seeded():
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("workers", "length", "batch_size"), [(2, 30, 4), (3, 31, 1), (3, 2, 5), (2, 5, None)]
)
def test_a_cured_stream_brings_each_sample_once(method, persistent, workers, length, batch_size):
    found, heard = told(
        lambda: DataLoader(
            Undivided(length),
            batch_size=batch_size,
            num_workers=workers,
            cure=True,
            multiprocessing_context=method,
            persistent_workers=persistent,
            collate_fn=None if batch_size else torch.tensor,
        ),
        epochs=3,
    )
    for epoch in found:
        assert sorted(epoch if batch_size is None else flat(epoch)) == list(range(length))
    assert heard == [
        f"[PS301] every worker makes the same samples: the first {min(16, length)} of all {workers} workers "
        f"are equal. cure=True: worker k yields the samples k, k + {workers}, k + {2 * workers} … of its "
        "stream, so that each comes once. To save the making of the others, let `__iter__` yield this "
        "worker's share."
    ]


def test_a_cured_epoch_may_be_left_early():
    loader = DataLoader(Undivided(), batch_size=2, num_workers=2, cure=True, persistent_workers=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MistakeWarning)
        for _ in range(5):
            iter(loader)
        for _ in range(5):
            next(iter(loader))
        assert sorted(flat(_plain(batch) for batch in loader)) == list(range(30))


class Breaks(IterableDataset):
    def __iter__(self):
        yield 0
        yield 1
        raise LookupError("the stream broke")


class BreaksAtOnce(IterableDataset):
    def __iter__(self):
        raise LookupError("no stream at all")


@pytest.mark.parametrize("dataset", [Breaks(), BreaksAtOnce()], ids=["midway", "at once"])
def test_a_stream_that_breaks_while_it_is_judged_is_an_error(dataset):
    loader = DataLoader(dataset, batch_size=4, num_workers=2, cure=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MistakeWarning)
        with pytest.raises(LookupError, match="stream"):
            list(loader)


class Dies(IterableDataset):
    def __iter__(self):
        if get_worker_info().id == 1:
            raise SystemExit(3)
        return iter(range(5))


def test_a_worker_that_dies_before_it_is_judged_does_not_hold_up_the_others():
    loader = DataLoader(Dies(), batch_size=1, num_workers=2, cure=True)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0]
    with pytest.raises(RuntimeError, match="exit code 3"):
        next(iterator)


# ---- generators that repeat ---------------------------------------------------------------------


class Noisy(Dataset):
    """Draws from a generator of its own."""

    def __init__(self, rng):
        self.rng = rng

    def __len__(self):
        return 16

    def draw(self):
        if isinstance(self.rng, torch.Generator):
            return torch.rand((), generator=self.rng)
        return self.rng.random()

    def __getitem__(self, index):
        return float(self.draw())


class Nested(Noisy):
    def __init__(self):
        self.transforms = [Noisy(random.Random(0))]

    def __getitem__(self, index):
        return self.transforms[0][index]


class SeededBySample(Noisy):
    def __getitem__(self, index):
        if isinstance(self.rng, random.Random):
            self.rng.seed(index)
        elif isinstance(self.rng, torch.Generator):
            self.rng.manual_seed(index)
        else:
            self.rng.bit_generator.state = type(self.rng.bit_generator)(index).state
        return float(self.draw())


class ReplacedBySample(Noisy):
    def __getitem__(self, index):
        self.rng = np.random.default_rng(index)
        return self.rng.random()


class Unused(Noisy):
    def __getitem__(self, index):
        return float(index)


class DrawnOnce(Noisy):
    """All workers draw the same order, once."""

    order = None

    def __getitem__(self, index):
        if self.order is None:
            self.order = self.rng.permutation(16)
        return float(self.order[index])


class Batched(Noisy):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class NoisyStream(IterableDataset):
    """Divided, but with noise that is the same in every worker."""

    def __init__(self):
        self.rng = random.Random(0)

    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id, 40, info.num_workers):
            yield index + self.rng.random() / 2


RNGS = {
    "numpy": lambda: np.random.default_rng(0),
    "numpy MT": lambda: np.random.Generator(np.random.MT19937(0)),
    "numpy SFC64": lambda: np.random.Generator(np.random.SFC64(0)),
    "numpy Philox": lambda: np.random.Generator(np.random.Philox(0)),
    "RandomState": lambda: np.random.RandomState(0),
    "random": lambda: random.Random(0),
    "torch": lambda: torch.Generator().manual_seed(0),
}


@pytest.fixture(params=RNGS)
def rng(request):
    """A generator of each kind."""
    return RNGS[request.param]()


def seed_by_worker(worker):
    rng = get_worker_info().dataset.rng
    rng.manual_seed(worker) if isinstance(rng, torch.Generator) else rng.seed(worker)


def repeats(epoch):
    """Whether a number was drawn twice."""
    numbers = flat(epoch)
    return len(set(numbers)) < len(numbers)


def test_a_generator_that_repeats_is_told_once_and_left_as_it_is(rng):
    found, heard = told(lambda: DataLoader(Noisy(rng), batch_size=4, num_workers=2), epochs=2)
    expected, _ = told(lambda: TorchLoader(Noisy(rng), batch_size=4, num_workers=2))
    assert found == expected * 2
    assert repeats(found[0])
    assert heard == [
        "[PS302] `dataset.rng` draws the same numbers in workers 0, 1: it was in one state when they began, "
        "and their first samples draw from it. Seed it in `worker_init_fn` from "
        "`torch.utils.data.get_worker_info().seed`, or pass cure=True."
    ]


def test_a_generator_is_named_by_its_path(method):
    _, heard = told(lambda: DataLoader(Nested(), batch_size=4, num_workers=2, multiprocessing_context=method))
    assert [each.split("`")[1] for each in heard] == ["dataset.transforms[0].rng"]


def test_batches_that_are_fetched_together_are_watched_too():
    dataset = Batched(random.Random(0))
    _, heard = told(lambda: DataLoader(dataset, batch_size=1, num_workers=2))
    assert [each[:7] for each in heard] == ["[PS302]"]


def test_a_lone_worker_repeats_itself_in_the_second_epoch():
    dataset = Noisy(random.Random(0))
    found, heard = told(lambda: DataLoader(dataset, batch_size=4, num_workers=1), epochs=3)
    assert found[0] == found[1] == found[2]
    assert heard == [
        "[PS302] `dataset.rng` draws the same numbers in every epoch: it was in the state of the last epoch "
        "when this one began, and samples draw from it. Seed it in `worker_init_fn` from "
        "`torch.utils.data.get_worker_info().seed`, or pass cure=True."
    ]


def test_noise_of_a_stream_is_told_but_not_cured():
    for cure in (False, True):
        found, heard = told(
            lambda cure=cure: DataLoader(NoisyStream(), batch_size=4, num_workers=2, cure=cure)
        )
        assert len(flat(found[0])) == 40
        assert heard == [
            "[PS302] `dataset.rng` draws the same numbers in workers 0, 1: it was in one state when they "
            "began, and their first samples draw from it. Seed it in `worker_init_fn` from "
            "`torch.utils.data.get_worker_info().seed`."
        ]


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Noisy(random.Random(0)), {"worker_init_fn": seed_by_worker}),
        (Noisy(np.random.RandomState(0)), {"worker_init_fn": seed_by_worker}),
        (Noisy(torch.Generator()), {"worker_init_fn": seed_by_worker}),
        (SeededBySample(random.Random(0)), {}),
        (SeededBySample(torch.Generator()), {}),
        (SeededBySample(np.random.default_rng(0)), {}),
        (SeededBySample(np.random.Generator(np.random.SFC64(0))), {}),
        (ReplacedBySample(np.random.default_rng(0)), {}),
        (Unused(random.Random(0)), {}),
        (DrawnOnce(np.random.default_rng(0)), {}),
        (Noisy(random._inst), {}),
        (Noisy(random.Random(0)), {"num_workers": 1, "persistent_workers": True}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_healthy_generators_are_not_suspected(dataset, options):
    options = {"num_workers": 2, "batch_size": 4, **options}
    found, heard = told(lambda: DataLoader(dataset, generator=seeded(), **options), epochs=2)
    expected, _ = told(lambda: TorchLoader(dataset, generator=seeded(), **options), epochs=2)
    assert (found, heard) == (expected, [])


@pytest.mark.parametrize("workers", [1, 2])
def test_cured_generators_differ_in_every_worker_and_epoch(rng, method, workers):
    def make():
        return DataLoader(
            Noisy(rng),
            batch_size=4,
            num_workers=workers,
            cure=True,
            generator=seeded(),
            multiprocessing_context=method,
        )

    found, heard = told(make, epochs=2)
    assert not repeats(flat(found))
    assert heard == [
        "[PS302] `dataset.rng` would draw the same numbers in every worker and epoch. cure=True: it was "
        "seeded in each worker from the seed of the epoch and the worker's number."
    ]
    assert told(make, epochs=2)[0] == found  # and the same again from the same seed


def test_what_the_user_has_seeded_is_not_seeded_again():
    dataset = Noisy(random.Random(0))
    found, heard = told(
        lambda: DataLoader(dataset, batch_size=16, num_workers=2, worker_init_fn=seed_by_worker, cure=True)
    )
    mine = random.Random(0)
    assert found == [[[mine.random() for _ in range(16)]]]
    assert heard == []


# ---- attributes that persistent workers do not see ----------------------------------------------


class Transform:
    def __init__(self):
        self.p = 0.25

    def __call__(self, value):
        return value + self.p


class Facts(Dataset):
    """Shows what a worker sees of its attributes."""

    def __init__(self):
        self.epoch = 0
        self.transform = Transform()
        self.shared = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.value = multiprocessing.Value("i", 0, lock=False)  # a lock would bind it to a start method
        self.cache = {}
        self.names = []
        self._length = None

    def __len__(self):
        self._length = 4
        return 4

    def __getitem__(self, index):
        self.cache[index] = index
        return self.epoch, self.transform(0.0), int(self.shared[0]), self.value.value


def persistent(dataset, method, **options):
    return DataLoader(
        dataset,
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=method,
        **options,
    )


def test_an_attribute_that_workers_do_not_see_is_told_once(method):
    dataset = Facts()
    found, heard = told(
        lambda: persistent(dataset, method), epochs=3, between=lambda epoch: setattr(dataset, "epoch", epoch)
    )
    assert [epoch[0][0] for epoch in found] == [[0, 0]] * 3
    assert heard == [
        "[PS303] `dataset.epoch` is 1, but persistent workers still have 0: they were given the dataset when "
        "they were started. Keep it where workers see it (`multiprocessing.Value`, a tensor after "
        "`share_memory_()`), or leave persistent_workers out, or pass cure=True."
    ]


def test_an_attribute_of_what_the_dataset_holds_is_told_with_its_path():
    dataset = Facts()
    _, heard = told(
        lambda: persistent(dataset, "fork"),
        epochs=2,
        between=lambda epoch: setattr(dataset.transform, "p", epoch / 2),
    )
    assert [each.split(":")[0] for each in heard] == [
        "[PS303] `dataset.transform.p` is 0.5, but persistent workers still have 0.0"
    ]


def test_what_is_shared_or_the_consumers_own_is_not_told(method):
    dataset = Facts()

    def change(epoch):
        dataset.shared[0] = epoch
        dataset.value.value = epoch
        dataset.cache[epoch] = epoch
        dataset.names.append(epoch)
        dataset[0]
        if epoch:
            dataset._lazy = epoch

    found, heard = told(lambda: persistent(dataset, method), epochs=2, between=change)
    assert [epoch[0][2:] for epoch in found] == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]
    assert heard == []


def test_fresh_workers_see_all_attributes():
    dataset = Facts()
    found, heard = told(
        lambda: DataLoader(dataset, batch_size=2, num_workers=2),
        epochs=2,
        between=lambda epoch: setattr(dataset, "epoch", epoch),
    )
    assert [epoch[0][0] for epoch in found] == [[0, 0], [1, 1]]
    assert heard == []


def test_cured_workers_get_what_has_changed(method):
    dataset = Facts()

    def change(epoch):
        dataset.epoch, dataset.transform.p = epoch, epoch / 2

    found, heard = told(lambda: persistent(dataset, method, cure=True), epochs=3, between=change)
    assert [epoch[0][:2] for epoch in found] == [[[n, n], [n / 2, n / 2]] for n in range(3)]
    assert heard == [
        "[PS303] `dataset.epoch` is 1, but persistent workers still have 0: they were given the dataset when "
        "they were started. cure=True: they were given the new value, as at the beginning of every epoch."
    ]


def test_a_transform_that_was_replaced_is_sent(method):
    dataset = Facts()

    def change(epoch):
        dataset.transform = Transform()
        dataset.transform.p = float(epoch)

    found, heard = told(lambda: persistent(dataset, method, cure=True), epochs=2, between=change)
    assert [epoch[0][1] for epoch in found] == [[0, 0], [1, 1]]
    assert len(heard) == 1


def test_what_cannot_be_sent_is_told():
    dataset = Facts()

    def change(epoch):
        if epoch:
            dataset.epoch = epoch
            dataset.transform = lambda value: value

    found, heard = told(lambda: persistent(dataset, "fork", cure=True), epochs=2, between=change)
    assert [epoch[0][:2] for epoch in found] == [[[0, 0], [0.25, 0.25]], [[1, 1], [0.25, 0.25]]]
    assert sorted("could not send" in each for each in heard) == [False, True]


def test_a_warning_made_an_error_costs_no_batch():
    loader = DataLoader(Undivided(12), batch_size=4, num_workers=2)
    iterator, found = iter(loader), []
    while True:
        try:
            found.append(next(iterator).tolist())
        except MistakeWarning:
            continue
        except StopIteration:
            break
    assert sorted(flat(found)) == sorted(2 * list(range(12)))
