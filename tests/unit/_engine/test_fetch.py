"""Batches as torch's fetchers make them, and where one failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.data import IterableDataset, default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from torch.utils.data.dataloader import _DatasetKind

from penstock._arena.slab import SlabWriter
from penstock._engine import fetch
from penstock._engine.black_box import COLLATING
from penstock._engine.fetch import Fetcher
from penstock._engine.job import Job
from penstock._engine.rows import Rows


class Squares:
    def __getitem__(self, index):
        if index == 13:
            raise ValueError("unlucky")
        return index * index


class ManySquares(Squares):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Count(IterableDataset):
    def __init__(self, end):
        self.end = end

    def __iter__(self):
        return iter(range(self.end))


MAP = Job(_DatasetKind.Map, None, True, tuple, False, 0, None, 1, None, "forked")
ITERABLE = replace(MAP, kind=_DatasetKind.Iterable)
SINGLE = replace(MAP, auto_collation=False)


# ---- the same as torch's ------------------------------------------------------------------------


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("dataset", [Squares(), ManySquares(), {5: "five", 3: "three"}])
def test_a_map_style_batch_is_torchs(dataset, auto):
    indices = [5, 3] if auto else 5
    collate = list if auto else repr
    ours = Fetcher(replace(MAP, auto_collation=auto, collate_fn=collate), dataset)
    theirs = _MapDatasetFetcher(dataset, auto, collate, False)
    assert ours.fetch(indices) == theirs.fetch(indices)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("length", [0, 1, 4, 5])
def test_an_iterable_style_epoch_is_torchs(length, auto, drop_last):
    def batches(fetcher):
        got = []
        try:
            for _ in range(10):
                got.append(fetcher.fetch([None, None] if auto else None))
        except StopIteration:
            return got
        pytest.fail("no end")

    collate = list if auto else repr
    job = replace(ITERABLE, auto_collation=auto, drop_last=drop_last, collate_fn=collate)
    dataset = Count(length)
    assert batches(Fetcher(job, dataset)) == batches(
        _IterableDatasetFetcher(dataset, auto, collate, drop_last)
    )


def test_an_iterable_dataset_that_has_ended_stays_so():
    fetcher = Fetcher(ITERABLE, Count(1))
    fetcher.fetch([None, None])
    for _ in range(2):
        with pytest.raises(StopIteration):
            fetcher.fetch([None, None])


def test_the_collate_function_gets_the_samples():
    assert Fetcher(replace(MAP, collate_fn=sum), Squares()).fetch([1, 2, 3]) == 14


@pytest.mark.parametrize(
    "collate",
    [
        list,
        pytest.param(default_collate),
    ],
)
def test_indices_may_come_from_an_iterator(collate):
    fetcher = Fetcher(replace(MAP, collate_fn=collate), Squares(), Rows(SlabWriter()))
    assert list(fetcher.fetch(iter([5, 3]))) == [25, 9]


# ---- where --------------------------------------------------------------------------------------


def where(fetcher, indices, error=Exception):
    with pytest.raises(error):
        fetcher.fetch(indices)
    return fetcher.where()


def test_a_failing_sample_is_named_with_its_place():
    assert where(Fetcher(MAP, Squares()), [4, 13, 5]) == "sample index: 13 (position 1 in its batch)"


def test_a_failing_sample_of_an_iterator_of_indices_is_not_named():
    assert where(Fetcher(MAP, Squares()), iter([4, 13, 5])) == ""


@pytest.mark.parametrize("indices", [(4, 13, 5), range(13, 15), torch.tensor([4, 13])], ids=str)
def test_a_failing_sample_is_named_whatever_holds_the_indices(indices):
    assert "13" in where(Fetcher(MAP, Squares()), indices)


def test_a_failing_sample_without_batches_is_named():
    assert where(Fetcher(SINGLE, Squares()), 13) == "sample index: 13"


def test_an_index_of_any_kind_is_named():
    fetcher = Fetcher(MAP, {})
    assert where(fetcher, [("a", 1)], KeyError) == "sample index: ('a', 1) (position 0 in its batch)"


def test_a_failing_fetch_of_many_samples_names_none_of_them_alone():
    assert "position 0" not in where(Fetcher(MAP, ManySquares()), [4, 13, 5])


def test_a_failing_iterable_dataset_has_no_index():
    def samples():
        yield 1
        raise ValueError

    assert where(Fetcher(ITERABLE, samples()), [None, None]) == ""


def test_an_index_that_is_no_batch_is_no_trouble():
    assert where(Fetcher(MAP, Squares()), 5, TypeError) == ""


def test_a_sample_that_does_not_fit_is_named():
    dataset = {3: torch.zeros(2), 4: torch.zeros(2), 8: torch.zeros(3)}
    assert where(Fetcher(replace(MAP, collate_fn=torch.stack), dataset), [3, 4, 8]) == (
        "sample index: 8 (position 2 in its batch) does not fit: is Tensor of shape (3,), "
        "in sample 3 it is Tensor of shape (2,)"
    )


def test_a_failing_collate_names_the_samples():
    assert where(Fetcher(replace(MAP, collate_fn=int), Squares()), [1, 2]) == "sample indices: 1, 2"


def test_a_failing_collate_of_an_iterable_dataset_names_no_index():
    fetcher = Fetcher(replace(ITERABLE, collate_fn=int), Count(5))
    assert "None" not in where(fetcher, [None, None])


def test_forgetting_drops_the_samples():
    fetcher = Fetcher(MAP, Squares())
    fetcher.fetch([1, 2])
    fetcher.forget()
    assert fetcher._samples == []


# ---- what the black box is told -----------------------------------------------------------------


class Box:
    """Remembers what it was told."""

    def __init__(self, pace_ns=1 << 62):
        self.told, self.pace_ns = [], pace_ns

    def at(self, position, index):
        self.told.append((position, index))

    def phase(self, number):
        self.told.append(number)


def told(fetcher, indices, **options):
    fetcher.fetch(indices, **options)
    return fetcher._box.told


def test_the_first_batch_is_told_sample_by_sample():
    assert told(Fetcher(MAP, Squares(), box=Box()), [5, 3]) == [(0, 5), (1, 3), COLLATING]


FAST = 2 * fetch.SLOW_NS  # two samples, exactly at the limit


def test_fast_samples_are_not_told():
    assert told(Fetcher(MAP, Squares(), box=Box(FAST)), [5, 3]) == [COLLATING]


def test_fast_samples_are_told_when_a_ticket_is_done_again():
    fetcher = Fetcher(MAP, Squares(), box=Box(FAST))
    assert told(fetcher, [5, 3], is_again=True) == [(0, 5), (1, 3), COLLATING]


def test_slow_samples_are_told():
    assert told(Fetcher(MAP, Squares(), box=Box(FAST + 1)), [5, 3]) == [(0, 5), (1, 3), COLLATING]


def test_samples_that_are_fetched_together_are_not_told_apart():
    assert told(Fetcher(MAP, ManySquares(), box=Box()), [5, 3]) == [COLLATING]


def test_a_single_sample_is_told():
    job = replace(SINGLE, collate_fn=repr)
    assert told(Fetcher(job, Squares(), box=Box()), 5) == [(0, 5), COLLATING]


@pytest.mark.parametrize("auto", [True, False])
def test_samples_of_an_iterable_dataset_are_told_by_position(auto):
    job = replace(ITERABLE, auto_collation=auto, collate_fn=repr)
    expected = [(0, None), (1, None), COLLATING] if auto else [(0, None), COLLATING]
    assert told(Fetcher(job, Count(5), box=Box()), [None] * 2 if auto else None) == expected


def test_rows_are_told_too():
    class Small:
        def __getitem__(self, index):
            return torch.full((2,), index)

    job = replace(MAP, collate_fn=default_collate)
    writer = SlabWriter()
    assert told(Fetcher(job, Small(), Rows(writer), box=Box()), [5, 3])[:2] == [(0, 5), (1, 3)]
    writer.close()
