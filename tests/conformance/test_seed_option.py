"""The option `seed`: the same batches, bit for bit, however many workers make them. It is ours alone."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, RandomSampler, Subset, get_worker_info

from penstock._base import host

from .comparing import assert_same, random_state, seed_everything, seeded

LAYOUTS = [(0, None), (1, "fork"), (2, "fork"), (3, "fork"), (1, "spawn"), (2, "spawn"), (3, "spawn")]


@pytest.fixture(autouse=True)
def _many_cpus(monkeypatch):
    monkeypatch.setattr(host, "cpu_count", lambda: 64)


def drawn():
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.randn(()).item()]


def draw_a_lot():
    """What the program draws elsewhere must not count."""
    for _ in range(3):
        drawn()


class Augmented(Dataset):
    """Draws from everything that there is."""

    def __init__(self, size=21):
        self.size = size
        self.numpy = np.random.default_rng(1)
        self.old = np.random.RandomState(1)
        self.steps = [{"python": random.Random(1)}, torch.Generator()]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        own = [
            self.numpy.normal(),
            self.old.randn(),
            self.steps[0]["python"].gauss(0, 1),
            torch.randn((), generator=self.steps[1]).item(),
        ]
        return torch.tensor([index, *drawn(), *own], dtype=torch.float64)


class Late(Augmented):
    """Makes a generator in the worker, at its first sample, from the kernel's randomness."""

    def __getitem__(self, index):
        if not hasattr(self, "late"):
            self.late = np.random.default_rng()
        return torch.cat(
            [super().__getitem__(index), torch.tensor([self.late.random()], dtype=torch.float64)]
        )


class Together(Augmented):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Keyed(Augmented):
    def __getitem__(self, key):
        return super().__getitem__(int(key[1]))


class Stream(IterableDataset):
    """Each worker has its share."""

    def __init__(self):
        self.numpy = np.random.default_rng(1)

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        for index in range(worker, 12, workers):
            yield torch.tensor([index, *drawn(), self.numpy.random()], dtype=torch.float64)


def mixup(samples):
    """A collate function that draws, from the dataset's generators too."""
    return torch.stack(samples), torch.tensor(drawn(), dtype=torch.float64)


def epochs_of(loader, count=2):
    return [list(loader) for _ in range(count)]


@pytest.fixture
def seeded_class(penstock_class):
    def make(dataset, workers=0, method=None, **options):
        if workers:
            options["multiprocessing_context"] = method
        return penstock_class(dataset, num_workers=workers, **{"seed": 7, "batch_size": 4, **options})

    return make


# ---- the same for any number of workers -----------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("workers", "method"), LAYOUTS[1:])
@pytest.mark.parametrize("make", [Augmented, Late], ids=["Augmented", "Late"])
def test_batches_are_the_same_for_any_number_of_workers(seeded_class, make, workers, method, persistent):
    expected = epochs_of(seeded_class(make(), shuffle=True, collate_fn=mixup))
    draw_a_lot()
    loader = seeded_class(
        make(), workers, method, shuffle=True, collate_fn=mixup, persistent_workers=persistent
    )
    assert_same(epochs_of(loader), expected)


@pytest.mark.parametrize(
    "options", [{"backend": "inline"}, {"backend": "auto"}, {"in_order": False}], ids=str
)
def test_batches_are_the_same_for_every_backend(seeded_class, options):
    expected = epochs_of(seeded_class(Augmented(), collate_fn=mixup))
    got = epochs_of(seeded_class(Augmented(), 2, "fork", collate_fn=mixup, **options))
    if "in_order" in options:
        got = [sorted(epoch, key=lambda batch: batch[0][0, 0].item()) for epoch in got]
    assert_same(got, expected)


@pytest.mark.parametrize(("workers", "method"), LAYOUTS[2:5])
def test_samples_are_the_same_whatever_the_batches_are(seeded_class, workers, method):
    expected = torch.cat(list(seeded_class(Augmented(), batch_size=1)))
    assert_same(torch.cat(list(seeded_class(Augmented(), workers, method, batch_size=5))), expected)
    single = list(seeded_class(Augmented(), workers, method, batch_size=None))
    assert_same(torch.stack(single), expected)
    subset = Subset(Augmented(), range(0, 21, 2))
    expected = torch.cat(list(seeded_class(subset, batch_size=1)))
    assert_same(torch.cat(list(seeded_class(subset, workers, method, batch_size=5))), expected)


def test_whole_batches_are_the_same_for_any_number_of_workers(seeded_class):
    expected = epochs_of(seeded_class(Together(), shuffle=True, collate_fn=mixup))
    assert_same(epochs_of(seeded_class(Together(), 2, shuffle=True, collate_fn=mixup)), expected)


def test_keys_that_are_no_numbers_are_seeded_too(seeded_class):
    keys = [("row", number) for number in range(9)]
    expected = epochs_of(seeded_class(Keyed(), sampler=keys))
    assert_same(epochs_of(seeded_class(Keyed(), 2, "spawn", sampler=keys)), expected)
    assert not torch.equal(expected[0][0][0, 1:], expected[0][0][1, 1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_and_seeds_differ(seeded_class, workers):
    first, second = epochs_of(seeded_class(Augmented(), workers, shuffle=True))
    other = list(seeded_class(Augmented(), workers, shuffle=True, seed=8))
    batches = [first[0], second[0], other[0]]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(batches[one][:, 0], batches[two][:, 0])
    unshuffled = epochs_of(seeded_class(Augmented(), workers))
    assert not (unshuffled[0][0][:, 1:] == unshuffled[1][0][:, 1:]).any()


class Normalised(Dataset):
    """Sums over so many numbers that torch would share them among its threads."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        picture = torch.randn(3, 224, 224)
        return torch.stack([picture.mean(), picture.std(), picture.double().sum()])


def test_sums_have_the_same_last_bits_without_workers(seeded_class):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        got = list(seeded_class(Normalised()))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert_same(got, list(seeded_class(Normalised(), 2)))


# ---- which epoch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_is_taken_up_at_any_epoch(seeded_class, workers, persistent):
    options = {"shuffle": True, "persistent_workers": persistent and workers > 0}
    expected = epochs_of(seeded_class(Augmented(), shuffle=True), 4)
    loader = seeded_class(Augmented(), workers, **options)
    loader.epoch = 2
    assert_same(epochs_of(loader), expected[2:])
    assert loader.epoch == 4
    loader.epoch = 1
    assert_same(list(loader), expected[1])


def test_an_epoch_that_was_broken_off_counts(seeded_class):
    expected = epochs_of(seeded_class(Augmented(), shuffle=True))
    loader = seeded_class(Augmented(), 2, shuffle=True, persistent_workers=True)
    next(iter(loader))
    assert_same(list(loader), expected[1])


def test_two_passes_at_once_are_two_epochs(seeded_class):
    expected = epochs_of(seeded_class(Augmented(), shuffle=True))
    loader = seeded_class(Augmented(), 1, shuffle=True)
    pairs = list(zip(loader, loader, strict=True))
    assert_same([list(one) for one in zip(*pairs, strict=True)], expected)


# ---- the consumer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "backend": "inline"}], ids=str)
@pytest.mark.parametrize("make", [Augmented, Stream])
def test_the_programs_own_random_numbers_go_on(penstock_class, make, options):
    dataset = make()
    loader = penstock_class(dataset, batch_size=4, seed=7, **options)
    own = dataset.numpy.bit_generator.state
    iterator = iter(loader)
    drawn()
    before = random_state()
    for _ in iterator:
        assert_same(random_state(), before)
    assert dataset.numpy.bit_generator.state == own


@pytest.mark.parametrize("workers", [0, 2])
def test_the_users_own_sampler_decides_the_order(penstock_class, workers):
    order = list(RandomSampler(range(21), generator=seeded()))
    sampler = RandomSampler(range(21), generator=seeded())
    loader = penstock_class(range(21), None, sampler=sampler, num_workers=workers, seed=7)
    assert list(loader) == order


@pytest.mark.parametrize("workers", [0, 2])
def test_the_users_own_generator_decides_the_order(penstock_class, workers):
    expected = list(TorchLoader(range(21), shuffle=True, generator=seeded()))
    loader = penstock_class(range(21), shuffle=True, num_workers=workers, generator=seeded(), seed=7)
    assert_same(list(loader), expected)


@pytest.mark.filterwarnings("ignore:.PS302")  # the dataset has generators of its own, as it must
@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_seed_everything_is_torchs(penstock_class, workers):
    outcomes = []
    for cls, options in ((TorchLoader, {}), (penstock_class, {"seed": None})):
        seed_everything()
        loader = cls(Augmented(), batch_size=4, shuffle=True, num_workers=workers, **options)
        outcomes.append((epochs_of(loader), random_state()))
    assert_same(outcomes[1], outcomes[0])
    assert loader.epoch == 0


def test_a_seed_of_a_subclass_is_its_own(penstock_class):
    class Loader(penstock_class):
        def __init__(self, *args):
            super().__init__(*args)
            self.seed, self.epoch = 5, "first"

    expected = list(TorchLoader(Augmented(), 4))
    seed_everything()
    loader = Loader(Augmented(), 4)
    assert_same(list(loader), expected)
    assert (loader.seed, loader.epoch) == (5, "first")


# ---- iterable datasets ------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_worker_has_its_stream(seeded_class, method, persistent):
    expected = epochs_of(seeded_class(Stream(), 2, "fork", collate_fn=mixup))
    draw_a_lot()
    loader = seeded_class(Stream(), 2, method, collate_fn=mixup, persistent_workers=persistent)
    assert_same(epochs_of(loader), expected)
    assert not torch.equal(expected[0][0][0][:, 1:], expected[0][1][0][:, 1:])
    assert not torch.equal(expected[0][0][0][:, 1:], expected[1][0][0][:, 1:])


def test_no_worker_is_like_one(seeded_class):
    expected = epochs_of(seeded_class(Stream(), 1, collate_fn=mixup))
    assert_same(epochs_of(seeded_class(Stream(), 0, collate_fn=mixup)), expected)


def seeds_of(samples):
    return get_worker_info().seed


def test_the_seed_that_a_worker_is_told_is_reproducible(seeded_class):
    one, other = (list(seeded_class(range(4), 2, collate_fn=seeds_of, batch_size=1)) for _ in range(2))
    assert one == other
    assert len(set(one)) == 2


# ---- failures ---------------------------------------------------------------------------------------


class Bad(Augmented):
    def __getitem__(self, index):
        if index == 6:
            raise KeyError(f"bad in {os.getpid()}")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_after_a_failure_are_the_same(seeded_class, workers):
    good = list(seeded_class(Augmented()))
    iterator = iter(seeded_class(Bad(), workers))
    assert_same(next(iterator), good[0])
    with pytest.raises(KeyError, match="bad"):
        next(iterator)
    assert_same(next(iterator), good[2])
