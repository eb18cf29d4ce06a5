"""Map-style datasets: which samples make which batch, in which order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler

from .comparing import assert_agrees_with_torch, seeded
from .datasets import Anything, Bulk, BulkRefused, Ints, Squares
from .samplers import EagerSampler, Growing, LazySampler, Reversed

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])

# name: (dataset, options); built anew for each loader, so that generators start equal.
ORDERS = {
    "defaults": lambda: (Squares(5), {}),
    "batch size": lambda: (Squares(), {"batch_size": 4}),
    "batch size larger than the dataset": lambda: (Squares(), {"batch_size": 64}),
    "drop last": lambda: (Squares(), {"batch_size": 4, "drop_last": True}),
    "drop last drops everything": lambda: (Squares(3), {"batch_size": 4, "drop_last": True}),
    "no batching": lambda: (Squares(), {"batch_size": None}),
    "shuffle by the global generator": lambda: (Squares(), {"batch_size": 3, "shuffle": True}),
    "shuffle by a generator": lambda: (
        Squares(),
        {"batch_size": 3, "shuffle": True, "generator": seeded()},
    ),
    "shuffle, no batching": lambda: (
        Squares(),
        {"batch_size": None, "shuffle": True, "generator": seeded()},
    ),
    "shuffle, drop last": lambda: (
        Squares(),
        {"batch_size": 3, "shuffle": True, "drop_last": True, "generator": seeded()},
    ),
    "own sampler": lambda: (Squares(), {"batch_size": 3, "sampler": Reversed()}),
    "own sampler, no batching": lambda: (Squares(), {"batch_size": None, "sampler": Reversed()}),
    "sampler is a list": lambda: (Squares(), {"batch_size": 2, "sampler": [3, 1, 4, 1, 5]}),
    "sampler is a tensor": lambda: (Squares(), {"batch_size": 2, "sampler": torch.tensor([3, 1])}),
    "sampler is an array, indices seen": lambda: (Anything(), {"sampler": np.array([3, 1])}),
    "sampler is a tensor, indices seen": lambda: (Anything(), {"sampler": torch.tensor([3, 1])}),
    "sampler is an array": lambda: (Squares(), {"batch_size": 2, "sampler": np.array([3, 1, 4])}),
    "sampler that draws at once": lambda: (Squares(), {"batch_size": 2, "sampler": EagerSampler()}),
    "sampler that draws at once, no batching": lambda: (
        Squares(),
        {"batch_size": None, "sampler": EagerSampler()},
    ),
    "sampler that draws one by one": lambda: (
        Squares(),
        {"batch_size": 2, "sampler": LazySampler()},
    ),
    "random, with replacement": lambda: (
        Squares(),
        {"sampler": RandomSampler(range(10), replacement=True, num_samples=70), "batch_size": 9},
    ),
    "random, with replacement and a generator": lambda: (
        Squares(),
        {
            "sampler": RandomSampler(
                range(10), replacement=True, num_samples=70, generator=(generator := seeded())
            ),
            "batch_size": 9,
            "generator": generator,
        },
    ),
    "random, more than once around": lambda: (
        Squares(),
        {"sampler": RandomSampler(range(10), num_samples=25, generator=seeded()), "batch_size": 4},
    ),
    "subset random": lambda: (Squares(), {"sampler": SubsetRandomSampler([1, 3, 5, 7])}),
    "subset random, generator": lambda: (
        Squares(),
        {"sampler": SubsetRandomSampler([1, 3, 5, 7], generator=seeded()), "batch_size": 3},
    ),
    "weighted random": lambda: (
        Squares(),
        {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0], 12), "batch_size": 5},
    ),
    "weighted random, no replacement": lambda: (
        Squares(),
        {"sampler": WeightedRandomSampler([1.0] * 6, 4, replacement=False, generator=seeded())},
    ),
    "sequential": lambda: (Squares(), {"sampler": SequentialSampler(range(6)), "batch_size": 4}),
    "batch sampler": lambda: (
        Squares(),
        {"batch_sampler": BatchSampler(RandomSampler(range(10), generator=seeded()), 3, True)},
    ),
    "own batch sampler": lambda: (Squares(), {"batch_sampler": Growing()}),
    "batch sampler is a list": lambda: (Squares(), {"batch_sampler": [[2, 1], (0, 0, 0), [9]]}),
    "batch sampler yields tensors": lambda: (
        Squares(),
        {"batch_sampler": [torch.tensor([2, 1]), torch.tensor([0])]},
    ),
    "batch sampler yields arrays": lambda: (Ints(), {"batch_sampler": [np.array([2, 1])]}),
}

DATASETS = {
    "indices are texts": lambda: (Anything(), {"sampler": ["a", "bc"], "batch_size": 2}),
    "indices are tuples": lambda: (Anything(), {"batch_sampler": [[(0, 1), (2, 3)], [(4, 5)]]}),
    "indices are lists, no batching": lambda: (
        Anything(),
        {"batch_size": None, "sampler": BatchSampler(SequentialSampler(range(5)), 2, False)},
    ),
    "indices are slices": lambda: (Anything(), {"batch_size": None, "sampler": [slice(0, 3), ...]}),
    "indices are none": lambda: (Anything(), {"batch_size": None, "sampler": [None, None]}),
    "dataset is a list": lambda: ([5, 6, 7], {"batch_size": 2}),
    "dataset is a dict": lambda: ({"a": 1, "b": 2}, {"sampler": ["b", "a"]}),
    "dataset is a text": lambda: ("abc", {"batch_size": 2}),
    "dataset is a range": lambda: (range(3, 9), {"batch_size": 4}),
    "dataset is a tensor": lambda: (torch.arange(12).reshape(4, 3), {"batch_size": 3}),
    "dataset is an array": lambda: (np.arange(12).reshape(4, 3), {"batch_size": 3}),
    "tensor dataset": lambda: (
        TensorDataset(torch.arange(6), torch.arange(12).reshape(6, 2)),
        {"batch_size": 4, "shuffle": True, "generator": seeded()},
    ),
    "subset": lambda: (Subset(Squares(), [8, 2, 5]), {"batch_size": 2}),
    "concatenation": lambda: (ConcatDataset([Squares(3), Squares(4)]), {"batch_size": 2}),
    "stack": lambda: (StackDataset(a=Ints(4), b=Squares(4)), {"batch_size": 3}),
    "random split": lambda: (random_split(Squares(), [7, 3], seeded())[0], {"batch_size": 2}),
    "fetch many": lambda: (Bulk(), {"batch_size": 4}),
    "fetch many, shuffled": lambda: (
        Bulk(),
        {"batch_size": 4, "shuffle": True, "generator": seeded()},
    ),
    "fetch many is none": lambda: (BulkRefused(), {"batch_size": 4}),
    "fetch many, no batching": lambda: (Bulk(), {"batch_size": None}),
    "empty dataset": lambda: ([], {"batch_size": 4}),
    "empty dataset, no batching": lambda: ([], {"batch_size": None}),
    "empty batch sampler": lambda: (Squares(), {"batch_sampler": []}),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("num_workers", "epochs"), [(0, 2), (2, 1)])
def test_the_order_of_batches_is_that_of_torch(loader_class, order, num_workers, epochs):
    def make(cls):
        dataset, options = ORDERS[order]()
        return cls(dataset, num_workers=num_workers, **options)

    assert_agrees_with_torch(loader_class, make, epochs=epochs)


@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_every_kind_of_dataset_gives_the_batches_of_torch(loader_class, kind, num_workers):
    def make(cls):
        dataset, options = DATASETS[kind]()
        return cls(dataset, num_workers=num_workers, **options)

    assert_agrees_with_torch(loader_class, make)


@pytest.mark.parametrize(
    "order",
    [
        "shuffle by the global generator",
        "shuffle by a generator",
        "sampler that draws at once, no batching",
        "sampler that draws one by one",
        "random, with replacement and a generator",
        "weighted random",
    ],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_the_next_epoch_is_drawn_as_by_torch(loader_class, order, persistent):
    def make(cls):
        dataset, options = ORDERS[order]()
        return cls(dataset, num_workers=1, persistent_workers=persistent, **options)

    assert_agrees_with_torch(loader_class, make, epochs=2)


@WORKERS
@pytest.mark.parametrize(("rank", "drop_last"), [(0, False), (1, True)])
def test_a_distributed_sampler_gives_each_rank_its_share(loader_class, num_workers, rank, drop_last):
    def make(cls):
        sampler = DistributedSampler(Squares(), 2, rank, seed=3, drop_last=drop_last)
        return cls(Squares(), batch_size=2, sampler=sampler, num_workers=num_workers)

    assert_agrees_with_torch(loader_class, make)


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_set_epoch_on_the_sampler_reshuffles(loader_class, num_workers, persistent):
    def epochs(cls):
        sampler = DistributedSampler(Ints(), 2, 0, shuffle=True)
        options = {"persistent_workers": persistent and num_workers > 0}
        loader = cls(Ints(), sampler=sampler, num_workers=num_workers, **options)
        found = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            found.append([int(row) for row in loader])
        return found

    expected = epochs(torch.utils.data.DataLoader)
    assert expected[0] != expected[1] != expected[2]
    assert epochs(loader_class) == expected


@pytest.mark.parametrize("prefetch_factor", [1, 2, 7])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_depth_of_prefetching_changes_no_batch(loader_class, prefetch_factor, num_workers):
    assert_agrees_with_torch(
        loader_class,
        lambda cls: cls(
            Squares(30),
            batch_size=4,
            shuffle=True,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
        ),
        epochs=2,
    )


def test_more_workers_than_batches_still_give_every_batch_once(loader_class):
    assert_agrees_with_torch(loader_class, lambda cls: cls(Squares(1), num_workers=2), epochs=2)


def test_without_order_every_batch_still_comes_once(loader_class):
    loader = loader_class(Ints(40), batch_size=4, num_workers=2, in_order=False)
    assert sorted(batch.tolist() for batch in loader) == [
        list(range(start, start + 4)) for start in range(0, 40, 4)
    ]


def test_without_order_one_worker_keeps_the_order(loader_class):
    loader = loader_class(Ints(20), batch_size=4, num_workers=1, in_order=False)
    assert [row for batch in loader for row in batch.tolist()] == list(range(20))


def test_without_order_persistent_workers_give_every_epoch_in_full(loader_class):
    loader = loader_class(Ints(20), num_workers=2, in_order=False, persistent_workers=True)
    for _ in range(3):
        assert sorted(int(batch) for batch in loader) == list(range(20))


def test_without_workers_in_order_false_changes_nothing(loader_class):
    assert [int(batch) for batch in loader_class(Ints(5), in_order=False)] == list(range(5))


def test_a_dataset_without_length_needs_only_a_sampler(loader_class):
    loader = loader_class(Anything(), sampler=[1, 2], num_workers=1)
    assert [batch["got"] for batch in loader] == [["1"], ["2"]]


def test_a_dataset_that_grows_between_epochs_gives_its_new_samples(loader_class):
    dataset = Ints(3)
    loader = loader_class(dataset, num_workers=1)
    assert len(list(loader)) == 3
    dataset.size = 5
    assert len(list(loader)) == 5
