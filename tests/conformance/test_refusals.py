"""What torch refuses, ours refuses, with the same type of exception."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from .datasets import Ints, Sharded
from .samplers import Reversed

# name: (dataset, options, exception, what its text must name)
REFUSED = {
    "workers below zero": (Ints(), {"num_workers": -1}, ValueError, "num_workers"),
    "timeout below zero": (Ints(), {"timeout": -1}, ValueError, "timeout"),
    "prefetch without workers": (Ints(), {"prefetch_factor": 2}, ValueError, "prefetch_factor"),
    "prefetch below zero": (
        Ints(),
        {"prefetch_factor": -1, "num_workers": 1},
        ValueError,
        "prefetch_factor",
    ),
    "persistent without workers": (
        Ints(),
        {"persistent_workers": True},
        ValueError,
        "persistent_workers",
    ),
    "context without workers": (
        Ints(),
        {"multiprocessing_context": "fork"},
        ValueError,
        "multiprocessing_context",
    ),
    "context of unknown name": (
        Ints(),
        {"multiprocessing_context": "teleport", "num_workers": 1},
        ValueError,
        "multiprocessing_context",
    ),
    "context of wrong type": (
        Ints(),
        {"multiprocessing_context": object(), "num_workers": 1},
        TypeError,
        "multiprocessing_context",
    ),
    "sampler and shuffle": (
        Ints(),
        {"sampler": Reversed(), "shuffle": True},
        ValueError,
        "sampler",
    ),
    "batch sampler and batch size": (
        Ints(),
        {"batch_sampler": [[1]], "batch_size": 2},
        ValueError,
        "batch_sampler",
    ),
    "batch sampler and no batching": (
        Ints(),
        {"batch_sampler": [[1]], "batch_size": None},
        ValueError,
        "batch_sampler",
    ),
    "batch sampler and shuffle": (
        Ints(),
        {"batch_sampler": [[1]], "shuffle": True},
        ValueError,
        "batch_sampler",
    ),
    "batch sampler and sampler": (
        Ints(),
        {"batch_sampler": [[1]], "sampler": Reversed()},
        ValueError,
        "batch_sampler",
    ),
    "batch sampler and drop last": (
        Ints(),
        {"batch_sampler": [[1]], "drop_last": True},
        ValueError,
        "batch_sampler",
    ),
    "no batching and drop last": (
        Ints(),
        {"batch_size": None, "drop_last": True},
        ValueError,
        "drop_last",
    ),
    "batch size of zero": (Ints(), {"batch_size": 0}, ValueError, "batch_size"),
    "batch size below zero": (Ints(), {"batch_size": -3}, ValueError, "batch_size"),
    "batch size is a float": (Ints(), {"batch_size": 2.0}, ValueError, "batch_size"),
    "batch size is a truth value": (Ints(), {"batch_size": True}, ValueError, "batch_size"),
    "drop last is no truth value": (Ints(), {"drop_last": 1}, ValueError, "drop_last"),
    "shuffle of an empty dataset": ([], {"shuffle": True}, ValueError, "num_samples"),
    "shuffle of a stream": (Sharded(), {"shuffle": True}, ValueError, "shuffle"),
    "sampler for a stream": (Sharded(), {"sampler": [1]}, ValueError, "sampler"),
    "batch sampler for a stream": (
        Sharded(),
        {"batch_sampler": [[1]]},
        ValueError,
        "batch_sampler",
    ),
    "shuffle of a dataset without length": (object(), {"shuffle": True}, TypeError, "len()"),
    "an unknown option": (Ints(), {"unknown": 1}, TypeError, "unknown"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused(loader_class, name):
    dataset, options, error, names = REFUSED[name]
    with pytest.raises(error, match=re.escape(names)):
        loader_class(dataset, **options)


def test_the_options_after_the_generator_are_keyword_only(loader_class):
    positional = [1, None, None, None, 1, None, False, False, 0, None, None, None]
    loader_class(Ints(), *positional)
    with pytest.raises(TypeError):
        loader_class(Ints(), *positional, 2)


def test_a_loader_needs_a_dataset(loader_class):
    with pytest.raises(TypeError):
        loader_class()


def test_a_batch_sampler_may_go_with_the_default_batch_size(loader_class):
    sampler = BatchSampler(SequentialSampler(range(4)), 2, False)
    loader = loader_class(Ints(), batch_sampler=sampler, batch_size=1)
    assert loader.batch_size is None
    assert loader.batch_sampler is sampler


def test_a_timeout_without_workers_is_refused_when_the_iterator_is_made(loader_class):
    loader = loader_class(Ints(), timeout=1)
    with pytest.raises(AssertionError):
        iter(loader)


@pytest.mark.parametrize(
    "name",
    ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_attribute_that_decides_the_batches_cannot_be_set_later(loader_class, name, num_workers):
    loader = loader_class(Ints(), num_workers=num_workers)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
        setattr(loader, name, None)


def test_a_refused_attribute_keeps_its_value(loader_class):
    loader = loader_class(Ints(), batch_size=3)
    with pytest.raises(ValueError):
        loader.batch_size = 4
    assert loader.batch_size == 3


def test_a_bad_context_is_refused_when_set_later(loader_class):
    loader = loader_class(Ints(), num_workers=1)
    with pytest.raises(ValueError, match="multiprocessing_context"):
        loader.multiprocessing_context = "teleport"


def test_a_dataset_without_length_or_sampler_is_refused_when_read(loader_class):
    class Endless(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return index

    with pytest.raises(TypeError):
        list(loader_class(Endless()))


@pytest.mark.parametrize("num_workers", [1.5, "2"])
def test_a_count_of_workers_that_is_no_integer_is_refused_in_the_end(loader_class, num_workers):
    with pytest.raises(TypeError):
        list(loader_class(Ints(), num_workers=num_workers))


def test_more_workers_than_processors_are_warned_about(loader_class):
    too_many = torch._utils.cpu_count() + 1
    with pytest.warns(UserWarning, match=f"will create {too_many} worker processes"):
        loader_class(Ints(), num_workers=too_many)


def test_the_check_of_the_worker_count_can_be_called(loader_class):
    loader = loader_class(Ints(), num_workers=1)
    assert loader.check_worker_number_rationality() is None
    loader.num_workers = torch._utils.cpu_count() + 1
    with pytest.warns(UserWarning, match="suggested max number of worker"):
        loader.check_worker_number_rationality()
