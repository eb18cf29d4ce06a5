"""Which seed a sample gets, and that it gets it."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from penstock._engine.generators import of_the_process
from penstock._engine.seeding import SampleSeeder, derive, first_of, generator_for, mix, number_of


@pytest.fixture(autouse=True)
def _as_before():
    saved = [(rng, rng.save()) for rng in of_the_process()]
    yield
    for rng, state in saved:
        rng.restore(state)


def drawn():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.randn(2).tolist()


class Draws:
    """Draws from the global generators and from one of its own."""

    def __init__(self, size=10):
        self.rng = np.random.default_rng(1)
        self.calls = []

    def __getitem__(self, index):
        self.calls.append(index)
        return index, drawn(), self.rng.random()


class Late(Draws):
    """Makes its generator at the first sample."""

    def __init__(self):
        super().__init__()
        self.rng = None

    def __getitem__(self, index):
        if self.rng is None:
            self.rng = np.random.default_rng()
        return super().__getitem__(index)


class Together(Draws):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_a_sample_draws_the_same_whatever_came_before():
    seeder = SampleSeeder(1, None)
    seeder.seed(5)
    expected = drawn()
    seeder.seed(6)
    assert drawn() != expected
    seeder.seed(5)
    assert drawn() == expected


def test_the_streams_of_a_sample_are_different():
    # numpy's and torch's oldest generators give the same bits for the same 32 bits of seed.
    dataset = [random.Random(), random.Random(), np.random.RandomState(), torch.Generator()]
    SampleSeeder(1, dataset).seed(3)
    words = [random.getrandbits(32), np.random.randint(2**32, dtype=np.uint32), raw(torch.default_generator)]
    words += [dataset[0].getrandbits(32), dataset[1].getrandbits(32)]
    words += [dataset[2].randint(2**32, dtype=np.uint32), raw(dataset[3])]
    assert len(set(map(int, words))) == 7


def raw(generator):
    return torch.empty((), dtype=torch.int64).random_(2**32, generator=generator).item()


@pytest.mark.parametrize(("seed", "epoch"), [(2, 0), (1, 1)])
def test_another_seed_or_epoch_gives_other_numbers(seed, epoch):
    SampleSeeder(1, None).seed(5)
    expected = drawn()
    seeder = SampleSeeder(seed, None)
    seeder.begin_epoch(epoch)
    seeder.seed(5)
    assert drawn() != expected


def test_samples_batches_and_streams_do_not_meet():
    seeder = SampleSeeder(1, None)
    seen = []
    for act in (seeder.seed, seeder.seed_collate, seeder.seed_stream):
        act(0)
        seen.append(random.random())
    assert len(set(seen)) == 3


def test_the_numbers_are_those_of_every_version():
    """Stored results must stay reproducible: a change here is a change that users see."""
    seeder = SampleSeeder(1, [np.random.default_rng()])
    seeder.begin_epoch(2)
    seeder.seed(3)
    assert (mix(1), derive(1, 2, "sample")) == (0x5692161D100B05E5, 0x26B2977D74EFCF3F)
    assert random.getrandbits(32) == 829903647


@pytest.mark.parametrize("index", [7, np.int64(7), torch.tensor(7), np.uint8(7)])
def test_an_integer_is_the_same_index_in_every_form(index):
    assert number_of(index) == 7


def test_any_other_index_counts_by_its_repr():
    assert number_of("a") == number_of("a") != number_of("b")
    assert number_of((1, "a")) == number_of((1, "a")) != number_of((1, "b"))
    assert number_of("\udcff") != number_of("")


def test_negative_and_huge_indices_are_taken():
    seeder = SampleSeeder(1, None)
    seen = set()
    for index in (-1, 0, 2**64 + 1, -(2**70)):
        seeder.seed(index)
        seen.add(random.random())
    assert len(seen) >= 3


@pytest.mark.parametrize(
    ("indices", "first"), [([3, 4], 3), ((3,), 3), ([], None), (range(5, 9), 5), (torch.tensor([6, 7]), 6)]
)
def test_the_first_index_of_a_batch(indices, first):
    assert first_of(indices) == first


def test_the_order_has_a_generator_of_its_own():
    order = torch.randperm(10, generator=generator_for(1, 0, "shuffle")).tolist()
    assert order == torch.randperm(10, generator=generator_for(1, 0, "shuffle")).tolist()
    assert order != torch.randperm(10, generator=generator_for(1, 1, "shuffle")).tolist()


# ---- apart --------------------------------------------------------------------------------------


def test_what_happens_apart_leaves_no_trace():
    dataset = Draws()
    seeder = SampleSeeder(1, dataset)
    random.gauss(0, 1)
    np.random.randn()  # half a pair is waiting in both
    states = [rng.save() for rng in of_the_process()]
    expected = drawn(), dataset.rng.random()
    for rng, state in zip(of_the_process(), states, strict=True):
        rng.restore(state)
    dataset.rng = np.random.default_rng(1)
    seeder.find_more()
    with contextlib.suppress(KeyError), seeder.apart():
        seeder.seed(1)
        drawn(), dataset.rng.random()
        raise KeyError
    assert (drawn(), dataset.rng.random()) == expected


def test_a_stream_goes_on_where_it_was():
    seeder = SampleSeeder(1, None)
    seeder.seed_stream(0)
    expected = [random.random() for _ in range(3)]
    got = []
    with seeder.apart(is_stream=True):
        seeder.seed_stream(0)
        got.append(random.random())
    random.random()
    with contextlib.suppress(KeyError), seeder.apart(is_stream=True):
        got.append(random.random())
        raise KeyError
    with seeder.apart(is_stream=True):
        got.append(random.random())
    assert got == expected


# ---- datasets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Draws, Late])
def test_a_wrapped_dataset_has_its_samples_in_any_order(make):
    one, other = (SampleSeeder(1, dataset).wrap(dataset) for dataset in (make(), make()))
    assert [one[index] for index in range(4)] == [other[index] for index in reversed(range(4))][::-1]


def test_the_first_sample_is_made_again_only_for_a_late_generator():
    for dataset, calls in ((Draws(), [3, 4]), (Late(), [3, 3, 4])):
        wrapped = SampleSeeder(1, dataset).wrap(dataset)
        wrapped[3], wrapped[4]
        assert dataset.calls == calls


def test_a_dataset_that_is_asked_for_batches_is_seeded_once_for_each():
    dataset = Together()
    wrapped = SampleSeeder(1, dataset).wrap(dataset)
    batch = wrapped.__getitems__([3, 4])
    assert batch == wrapped.__getitems__([3, 4])
    assert batch[0] == wrapped[3]
    assert batch[1] != wrapped[4]


class LateTogether(Late):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_a_batch_of_a_late_generator_is_made_again():
    one, other = (SampleSeeder(1, dataset).wrap(dataset) for dataset in (LateTogether(), LateTogether()))
    assert one.__getitems__([3, 4]) == other.__getitems__([3, 4])


def test_a_subset_is_seeded_sample_by_sample():
    dataset = Subset(Subset(Draws(), range(10)), [4, 5])
    assert not hasattr(SampleSeeder(1, dataset).wrap(dataset), "__getitems__")


def test_a_subset_of_batches_is_asked_for_batches():
    dataset = Subset(Together(), [4, 5])
    assert hasattr(SampleSeeder(1, dataset).wrap(dataset), "__getitems__")
