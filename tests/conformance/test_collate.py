"""From samples to batches: the default collate, the default convert and the user's own."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import default_collate, default_convert

from .comparing import assert_agrees_with_torch, assert_same, iterating
from .datasets import Assorted, Copies, Made, Squares, as_given, outcomes, summed
from .payloads import REFUSED_SAMPLES, SAMPLES, MakeSample


@pytest.fixture(scope="module")
def batched(loader_class):
    """One batch of three per kind of sample, from one worker."""
    kinds = [*SAMPLES, *REFUSED_SAMPLES]
    loader = loader_class(
        Copies(*map(MakeSample, kinds)),
        batch_sampler=[[(number, copy) for copy in range(3)] for number in range(len(kinds))],
        num_workers=1,
        timeout=30,
    )
    return dict(zip(kinds, outcomes(loader), strict=True))


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_batched_as_without_workers(batched, name):
    assert_same(batched[name], default_collate([SAMPLES[name]() for _ in range(3)]))


@pytest.mark.parametrize("name", REFUSED_SAMPLES)
def test_samples_that_cannot_be_batched_are_refused_as_by_torch(batched, name):
    _, error, text = REFUSED_SAMPLES[name]
    with pytest.raises(error, match=text):
        raise batched[name]


@pytest.fixture(scope="module")
def converted(loader_class):
    """Each kind of sample, not batched, from one worker."""
    loader = loader_class(Assorted(*map(MakeSample, SAMPLES)), batch_size=None, num_workers=1)
    return dict(zip(SAMPLES, outcomes(loader), strict=True))


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_without_batching_are_converted_as_by_torch(converted, name):
    assert_same(converted[name], default_convert(SAMPLES[name]()))


def nested_tensor():
    return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)


def test_nested_tensors_are_refused_by_the_default_collate(loader_class):
    loader = loader_class(Made(nested_tensor), batch_size=2, num_workers=1)
    with iterating(loader) as iterator, pytest.raises(RuntimeError, match="nested tensors"):
        list(iterator)


class Ragged:
    """Sample n has `lengths[n]` elements."""

    def __init__(self, *lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.ones(self.lengths[index])


@pytest.mark.parametrize("lengths", [(2, 3), (3, 2), (0, 1)])
def test_samples_of_unequal_size_are_refused(loader_class, lengths):
    loader = loader_class(Ragged(*lengths), batch_size=2, num_workers=1)
    with iterating(loader) as iterator, pytest.raises(RuntimeError):
        list(iterator)


class UnequalLists(Ragged):
    def __getitem__(self, index):
        return [1] * self.lengths[index]


def test_lists_of_unequal_length_are_refused(loader_class):
    loader = loader_class(UnequalLists(2, 3), batch_size=2, num_workers=1)
    with iterating(loader) as iterator, pytest.raises(RuntimeError, match="equal size"):
        list(iterator)


class MixedDtypes:
    """Sample n has the n-th dtype."""

    def __init__(self, *dtypes):
        self.dtypes = dtypes

    def __len__(self):
        return len(self.dtypes)

    def __getitem__(self, index):
        return torch.full((2,), 1 / 3).to(self.dtypes[index])


@pytest.mark.parametrize(
    "dtypes",
    [(torch.float64, torch.int32), (torch.float32, torch.float64), (torch.int64, torch.bool)],
)
def test_samples_of_unequal_dtype_take_the_dtype_that_torch_takes(loader_class, dtypes):
    assert_agrees_with_torch(loader_class, lambda cls: cls(MixedDtypes(*dtypes), batch_size=2, num_workers=1))


def test_samples_that_the_dtype_of_the_first_cannot_hold_are_refused(loader_class):
    dataset = MixedDtypes(torch.int32, torch.float64)
    loader = loader_class(dataset, batch_size=2, num_workers=1)
    with iterating(loader) as iterator, pytest.raises(TypeError, match="can't be cast"):
        list(iterator)


class MixedNumbers(Ragged):
    def __getitem__(self, index):
        return (1, 2.5)[index]


def test_ints_and_floats_in_one_batch_give_what_torch_gives(loader_class):
    assert_agrees_with_torch(loader_class, lambda cls: cls(MixedNumbers(1, 1), batch_size=2, num_workers=1))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_custom_collate_makes_the_batch(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Squares(), batch_size=4, collate_fn=summed, num_workers=num_workers),
    )


def test_a_custom_collate_may_leave_the_list_of_samples_alone(loader_class):
    loader = loader_class(Squares(3), batch_size=2, collate_fn=as_given, num_workers=1)
    expected = [[Squares()[0], Squares()[1]], [Squares()[2]]]
    assert_same(list(loader), expected)


def test_a_collate_of_the_caller_may_be_a_closure(loader_class):
    scale = 3
    loader = loader_class(
        [1, 2, 3],
        batch_size=3,
        num_workers=1,
        collate_fn=lambda rows: [scale * row for row in rows],
    )
    assert list(loader) == [[3, 6, 9]]


def test_a_collate_may_call_the_default_one(loader_class):
    loader = loader_class(
        Squares(4),
        batch_size=2,
        num_workers=1,
        collate_fn=lambda rows: {"rows": default_collate(rows), "count": len(rows)},
    )
    expected = [
        {"rows": default_collate([Squares()[0], Squares()[1]]), "count": 2},
        {"rows": default_collate([Squares()[2], Squares()[3]]), "count": 2},
    ]
    assert_same(list(loader), expected)


class Padded:
    """A collate object with state of its own."""

    def __init__(self):
        self.calls = 0

    def __call__(self, rows):
        self.calls += 1
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return padded, torch.tensor([len(row) for row in rows]), self.calls


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_collate_object_keeps_its_state_in_each_worker(loader_class, num_workers):
    dataset = Ragged(3, 1, 4, 1, 5, 9, 2, 6)
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(dataset, batch_size=2, num_workers=num_workers, collate_fn=Padded()),
    )


class WithTheLast:
    """Remembers its last batch and gives it out again with the next."""

    def __init__(self):
        self.last = None

    def __call__(self, rows):
        batch = default_collate(rows)
        last, self.last = self.last, batch
        return batch, batch if last is None else last.clone()


def test_a_collate_that_remembers_its_last_batch_finds_it_unchanged(loader_class):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Ragged(*[7] * 60), batch_size=2, num_workers=1, collate_fn=WithTheLast()),
    )


class Caches:
    """Keeps what it made: samples that the default collate built, and single tensors."""

    def __init__(self):
        self.made = {}

    def __len__(self):
        return 40

    def __getitem__(self, index):
        kind = index % 5
        if kind not in self.made:
            self.made[kind] = default_collate([torch.full((9,), float(kind))] * 3)
        return self.made[kind]


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_dataset_that_keeps_its_samples_finds_them_unchanged(loader_class, batch_size):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Caches(), batch_size=batch_size, num_workers=1, persistent_workers=True),
        epochs=2,
    )


def test_a_collate_that_returns_a_sample_returns_that_sample_only(loader_class):
    loader = loader_class(Squares(2), batch_size=2, num_workers=1, collate_fn=lambda rows: rows[1])
    assert_same(list(loader), [Squares()[1]])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_samples_without_batching_go_through_a_collate_one_by_one(loader_class, num_workers):
    loader = loader_class(
        [1, 2, 3], batch_size=None, collate_fn=lambda row: row * 10, num_workers=num_workers
    )
    assert list(loader) == [10, 20, 30]


def test_the_default_collate_is_the_public_one(loader_class):
    assert loader_class([1]).collate_fn is default_collate
    assert loader_class([1], batch_size=None).collate_fn is default_convert
