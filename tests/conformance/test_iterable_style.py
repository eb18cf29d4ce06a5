"""Iterable datasets: every worker has its own iterator, and the batches come round robin."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import ChainDataset

from .comparing import assert_agrees_with_torch, iterating, seeded
from .datasets import (
    BreaksAtOnce,
    BreaksMidway,
    Count,
    IterableDraws,
    Recovers,
    Restarts,
    Sharded,
    SizedCount,
    SizedSharded,
    Uneven,
    as_given,
    outcomes,
)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_a_sharded_stream_comes_in_the_order_of_torch(loader_class, num_workers, batch_size):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Sharded(), batch_size=batch_size, num_workers=num_workers),
        epochs=2,
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_drop_last_drops_the_rest_of_every_worker(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Sharded(), batch_size=4, drop_last=True, num_workers=num_workers),
        epochs=2,
    )


@pytest.mark.parametrize("sizes", [(5, 1), (1, 5), (0, 3), (3, 0), (0, 0), (9, 2)])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_workers_that_end_early_are_skipped_as_by_torch(loader_class, sizes, batch_size):
    assert_agrees_with_torch(
        loader_class, lambda cls: cls(Uneven(*sizes), batch_size=batch_size, num_workers=2)
    )


def test_persistent_workers_start_every_epoch_anew(loader_class):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Uneven(5, 1), batch_size=2, num_workers=2, persistent_workers=True),
        epochs=3,
    )


def test_an_epoch_ends_however_many_tickets_are_left_over_from_the_last(loader_class):
    loader = loader_class(
        Uneven(2, 1), batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=8, timeout=30
    )
    assert [list(loader) for _ in range(30)] == [[0, 100, 1]] * 30


def test_persistent_workers_keep_the_state_of_the_stream(loader_class):
    loader = loader_class(Restarts(), batch_size=None, num_workers=1, persistent_workers=True)
    assert [list(loader) for _ in range(3)] == [[1], [2], [3]]


def test_fresh_workers_have_the_stream_as_it_was_made(loader_class):
    loader = loader_class(Restarts(), batch_size=None, num_workers=1)
    assert [list(loader) for _ in range(3)] == [[1], [1], [1]]


@pytest.mark.parametrize("prefetch_factor", [1, 5])
def test_the_depth_of_prefetching_changes_no_batch(loader_class, prefetch_factor):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(Uneven(7, 3), num_workers=2, prefetch_factor=prefetch_factor),
    )


def test_an_unsharded_stream_is_repeated_by_every_worker(loader_class):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # penstock says once that this is seldom meant
        rows = [int(row) for row in loader_class(Count(3), batch_size=None, num_workers=2)]
    assert rows == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_chain_of_streams_gives_one_after_another(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(ChainDataset([Sharded(3), Sharded(4)]), batch_size=2, num_workers=num_workers),
    )


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_random_streams_draw_what_they_draw_with_torch(loader_class, num_workers, persistent):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            IterableDraws(),
            batch_size=2,
            num_workers=num_workers,
            generator=seeded(),
            persistent_workers=persistent and num_workers > 0,
        ),
        epochs=2,
    )


def test_shuffle_may_be_given_as_false(loader_class):
    assert [int(row) for row in loader_class(Sharded(3), shuffle=False)] == [0, 1, 2]


def test_without_order_every_sample_still_comes_once(loader_class):
    loader = loader_class(Sharded(20), batch_size=None, num_workers=2, in_order=False)
    assert sorted(int(row) for row in loader) == list(range(20))


def test_a_custom_collate_gets_the_samples_of_one_worker(loader_class):
    loader = loader_class(Sharded(6), batch_size=2, num_workers=2, collate_fn=as_given)
    assert list(loader) == [[0, 2], [1, 3], [4], [5]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_in_the_stream_comes_at_its_place(loader_class, num_workers):
    with iterating(loader_class(BreaksMidway(), num_workers=num_workers)) as iterator:
        assert [int(next(iterator)), int(next(iterator))] == [0, 1]
        with pytest.raises(LookupError, match="the stream broke"):
            next(iterator)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_generator_that_raised_has_ended(loader_class, num_workers):
    found = outcomes(loader_class(BreaksMidway(), batch_size=None, num_workers=num_workers))
    assert [type(one) for one in found] == [int, int, LookupError]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stream_that_recovers_goes_on(loader_class, num_workers):
    found = outcomes(loader_class(Recovers(), batch_size=None, num_workers=num_workers))
    assert [type(one) for one in found] == [int, LookupError, int, int]
    assert [one for one in found if isinstance(one, int)] == [1, 3, 4]


def test_an_error_in_iter_reaches_the_consumer(loader_class):
    loader = loader_class(BreaksAtOnce(), num_workers=1)
    with iterating(loader) as iterator, pytest.raises(LookupError, match="no stream at all"):
        next(iterator)


def test_an_error_in_iter_without_workers_comes_when_the_iterator_is_made(loader_class):
    with pytest.raises(LookupError, match="no stream at all"):
        iter(loader_class(BreaksAtOnce()))


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "length"), [(None, False, 7), (2, False, 4), (2, True, 3)]
)
def test_the_length_is_estimated_from_that_of_the_dataset(loader_class, batch_size, drop_last, length):
    loader = loader_class(SizedCount(7), batch_size=batch_size, drop_last=drop_last)
    assert len(loader) == length


def test_a_stream_without_length_has_no_length(loader_class):
    with pytest.raises(TypeError):
        len(loader_class(Count()))


def test_a_stream_longer_than_its_length_is_warned_about(loader_class):
    loader = loader_class(SizedCount(3), batch_size=None, num_workers=0)
    loader.dataset.size = 2
    assert len(loader) == 2
    loader.dataset.size = 3
    with pytest.warns(UserWarning, match="Length of IterableDataset .* was reported to be 2"):
        assert list(loader) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::penstock.errors.MistakeWarning")  # ours comes as well, and earlier
def test_a_stream_repeated_by_workers_is_warned_about_once_its_length_was_asked(loader_class):
    loader = loader_class(SizedCount(2), batch_size=None, num_workers=2)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="not properly configuring the IterableDataset"):
        list(loader)


def test_a_stream_of_the_right_length_is_not_warned_about(loader_class):
    loader = loader_class(SizedSharded(4), batch_size=None, num_workers=2)
    assert len(loader) == 4
    assert len(list(loader)) == 4


def test_the_iterator_over_a_stream_without_length_has_no_length(loader_class):
    with pytest.raises(TypeError):
        len(iter(loader_class(Count(), batch_size=None)))


def test_a_stream_of_tensors_is_stacked(loader_class):
    class Tensors(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.arange(6.0).reshape(3, 2))

    assert_agrees_with_torch(loader_class, lambda cls: cls(Tensors(), batch_size=2, num_workers=1))
