"""Datapipes: the shared seed of shuffles and the shards of workers are torch's."""

from __future__ import annotations

import pytest
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from .comparing import assert_agrees_with_torch, assert_same, iterating, seeded
from .datasets import mark_dataset

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])


@WORKERS
def test_a_sharded_pipe_gives_each_worker_its_share(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(IterableWrapper(range(11)).sharding_filter(), batch_size=2, num_workers=num_workers),
        epochs=2,
    )


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_a_shuffled_and_sharded_pipe_is_shuffled_as_by_torch(loader_class, num_workers, persistent):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            IterableWrapper(range(12)).shuffle().sharding_filter(),
            batch_size=2,
            num_workers=num_workers,
            persistent_workers=persistent and num_workers > 0,
        ),
        epochs=2,
    )


@WORKERS
def test_a_generator_decides_the_shuffle_of_a_pipe(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            IterableWrapper(range(12)).shuffle().sharding_filter(),
            num_workers=num_workers,
            generator=seeded(),
        ),
        epochs=2,
    )


def test_every_element_of_a_shuffled_pipe_comes_once(loader_class):
    pipe = IterableWrapper(range(12)).shuffle().sharding_filter()
    rows = [int(row) for row in loader_class(pipe, batch_size=None, num_workers=2)]
    assert sorted(rows) == list(range(12))
    assert rows != list(range(12))


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_option_shuffle_sets_the_shuffler_of_a_pipe(loader_class, shuffle):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            IterableWrapper(range(9)).shuffle().sharding_filter(), shuffle=shuffle, num_workers=2
        ),
    )


def test_shuffle_without_a_shuffler_is_warned_about(loader_class):
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`"):
        loader_class(IterableWrapper(range(4)), shuffle=True)


@WORKERS
def test_a_map_pipe_gives_the_batches_of_torch(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            SequenceWrapper(list(range(7))).map(str),
            batch_size=3,
            shuffle=True,
            num_workers=num_workers,
        ),
        epochs=2,
    )


@WORKERS
def test_a_shuffled_map_pipe_gives_the_batches_of_torch(loader_class, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(SequenceWrapper(list(range(7))).shuffle().sharding_filter(), num_workers=num_workers),
        epochs=2,
    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_made_by_a_pipe_come_as_they_are(loader_class, num_workers):
    pipe = IterableWrapper(range(5)).batch(2)
    loader = loader_class(pipe, batch_size=None, num_workers=num_workers)
    assert_same([list(batch) for batch in loader], [[0, 1], [2, 3], [4]])


def test_worker_init_still_runs_after_the_sharding(loader_class):
    pipe = IterableWrapper(range(4)).sharding_filter()
    loader = loader_class(pipe, batch_size=None, num_workers=2, worker_init_fn=mark_dataset)
    assert sorted(loader) == [0, 1, 2, 3]


def test_the_dataset_of_a_loader_over_a_pipe_is_torchs_wrapper(loader_class):
    import torch.utils.data.datapipes.datapipe as datapipe

    wrapped = loader_class(IterableWrapper([1])).dataset
    assert type(wrapped) is datapipe._IterDataPipeSerializationWrapper


def test_two_shards_in_one_pipe_are_refused(loader_class):
    pipe = IterableWrapper(range(4)).sharding_filter().sharding_filter()
    loader = loader_class(pipe, num_workers=1)
    with iterating(loader) as iterator, pytest.raises(RuntimeError, match="Sharding twice"):
        next(iterator)
