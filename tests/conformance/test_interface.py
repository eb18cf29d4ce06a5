"""The face of the class: what Lightning, Accelerate and users read from it."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from typing import get_args, get_origin

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
)
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data.dataloader import _DatasetKind, _InfiniteConstantSampler

from .comparing import assert_same, descendants, seeded
from .datasets import Ints, Sharded, Squares, as_given, mark_dataset
from .samplers import Reversed

STOCK = inspect.signature(TorchLoader.__init__).parameters


def test_the_class_is_a_subclass_of_torchs(loader_class):
    assert issubclass(loader_class, TorchLoader)
    assert isinstance(loader_class(Ints()), TorchLoader)


def test_the_class_is_called_dataloader(loader_class):
    assert loader_class.__name__ == "DataLoader"


def test_the_signature_begins_with_the_stock_parameters(loader_class):
    ours = inspect.signature(loader_class.__init__).parameters
    assert list(ours)[: len(STOCK)] == list(STOCK)
    assert [ours[name].kind for name in STOCK] == [STOCK[name].kind for name in STOCK]


def test_the_stock_parameters_have_their_defaults(loader_class):
    ours = inspect.signature(loader_class.__init__).parameters
    assert {name: ours[name].default for name in STOCK} == {name: STOCK[name].default for name in STOCK}


def test_further_parameters_are_keyword_only_and_have_defaults(loader_class):
    ours = inspect.signature(loader_class.__init__).parameters
    for name in list(ours)[len(STOCK) :]:
        assert ours[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert ours[name].default is not inspect.Parameter.empty


def test_every_parameter_is_an_attribute_of_its_name(loader_class):
    loader = loader_class(Ints(), num_workers=1)
    for name in inspect.signature(loader_class).parameters:
        assert name == "shuffle" or hasattr(loader, name)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_attributes_are_those_of_torch(loader_class, num_workers):
    stock = TorchLoader(Ints(), num_workers=num_workers)
    loader = loader_class(Ints(), num_workers=num_workers)
    assert set(vars(stock)) <= set(vars(loader))


def test_the_attributes_have_the_values_given(loader_class):
    options = {
        "num_workers": 1,
        "collate_fn": as_given,
        "pin_memory": False,
        "timeout": 12.5,
        "worker_init_fn": mark_dataset,
        "generator": seeded(),
        "prefetch_factor": 3,
        "persistent_workers": True,
        "pin_memory_device": "cpu",
        "in_order": False,
        "batch_size": 4,
        "drop_last": True,
    }
    dataset = Ints()
    loader = loader_class(dataset, **options)
    assert loader.dataset is dataset
    assert {name: getattr(loader, name) for name in options} == options


def test_the_defaults_are_those_of_torch(loader_class):
    loader, stock = loader_class([1]), TorchLoader([1])
    for name, value in vars(stock).items():
        if not isinstance(value, (list, torch.utils.data.Sampler)):
            assert getattr(loader, name) == value, name


def test_with_workers_the_prefetch_factor_is_two(loader_class):
    assert loader_class(Ints(), num_workers=1).prefetch_factor == 2
    assert loader_class(Ints()).prefetch_factor is None


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, SequentialSampler), ({"shuffle": True}, RandomSampler), ({"sampler": [1]}, list)],
)
def test_the_sampler_is_of_torchs_kind(loader_class, options, kind):
    loader = loader_class(Ints(), **options)
    assert type(loader.sampler) is kind
    assert type(loader.batch_sampler) is BatchSampler
    assert loader.batch_sampler.sampler is loader.sampler


def test_the_random_sampler_has_the_generator_of_the_loader(loader_class):
    loader = loader_class(Ints(), shuffle=True, generator=seeded())
    assert loader.sampler.generator is loader.generator


def test_a_stream_has_torchs_endless_sampler(loader_class):
    loader = loader_class(Sharded())
    assert type(loader.sampler) is _InfiniteConstantSampler
    assert loader._dataset_kind == _DatasetKind.Iterable


@pytest.mark.parametrize(
    ("options", "automatic"),
    [({}, True), ({"batch_size": None}, False), ({"batch_sampler": [[1]]}, True)],
)
def test_auto_collation_says_whether_batches_are_made(loader_class, options, automatic):
    loader = loader_class(Ints(), **options)
    assert loader._auto_collation is automatic
    assert loader._index_sampler is (loader.batch_sampler if automatic else loader.sampler)


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({}, 10),
        ({"batch_size": 4}, 3),
        ({"batch_size": 4, "drop_last": True}, 2),
        ({"batch_size": None}, 10),
        ({"sampler": [1, 2, 3], "batch_size": 2}, 2),
        ({"sampler": Reversed(5)}, 5),
        ({"batch_sampler": [[1], [2, 3]]}, 2),
        ({"shuffle": True, "batch_size": 3, "num_workers": 1}, 4),
    ],
)
def test_the_length_is_the_number_of_batches(loader_class, options, length):
    assert len(loader_class(Ints(), **options)) == length


def test_the_length_follows_the_dataset(loader_class):
    dataset = Ints(4)
    loader = loader_class(dataset)
    dataset.size = 6
    assert len(loader) == 6


def test_a_sampler_without_length_has_no_length(loader_class):
    loader = loader_class(Ints(), sampler=iter([1, 2]))
    with pytest.raises(TypeError):
        len(loader)


def test_the_context_is_a_property_of_the_class(loader_class):
    assert isinstance(inspect.getattr_static(loader_class, "multiprocessing_context"), property)
    assert "multiprocessing_context" not in vars(loader_class(Ints(), num_workers=1))


def test_the_context_is_none_unless_given(loader_class):
    assert loader_class(Ints(), num_workers=1).multiprocessing_context is None


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_name_of_a_start_method_becomes_its_context(loader_class, method):
    loader = loader_class(Ints(), num_workers=1, multiprocessing_context=method)
    assert loader.multiprocessing_context.get_start_method() == method


def test_a_context_object_is_kept(loader_class):
    context = multiprocessing.get_context("fork")
    loader = loader_class(Ints(), num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is context
    assert len(list(loader)) == 10


def test_the_class_can_be_subscripted(loader_class):
    alias = loader_class[int]
    assert get_origin(alias) is loader_class
    assert get_args(alias) == (int,)
    assert len(alias(Ints())) == 10


def test_a_subclass_may_override_iter_and_len(loader_class):
    class Doubled(loader_class[int]):
        def __init__(self, *args, extra, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = extra

        def __iter__(self):
            for batch in super().__iter__():
                yield batch * 2

        def __len__(self):
            return 99

    loader = Doubled(Ints(3), num_workers=1, extra="kept")
    assert [int(batch) for batch in loader] == [0, 2, 4]
    assert len(loader) == 99
    assert loader.extra == "kept"


def test_a_subclass_may_set_attributes_before_and_after(loader_class):
    class Named(loader_class):
        def __init__(self, *args, **kwargs):
            self.before = 1
            super().__init__(*args, **kwargs)
            self.after = 2

    loader = Named(Ints(2), num_workers=1)
    assert (loader.before, loader.after, len(list(loader))) == (1, 2, 2)


def test_a_subclass_may_replace_the_iterator(loader_class):
    class Other(loader_class):
        def _get_iterator(self):
            return iter(["replaced"])

    assert list(Other(Ints(), num_workers=1)) == ["replaced"]


def test_a_loader_can_be_made_again_from_its_attributes(loader_class):
    loader = loader_class(Ints(), batch_size=3, num_workers=1, generator=seeded())
    taken = {"batch_sampler", "batch_size", "drop_last", "shuffle", "sampler"}
    options = {
        name: getattr(loader, name)
        for name in inspect.signature(loader_class).parameters
        if name not in taken
    }
    twin = loader_class(**options, batch_sampler=loader.batch_sampler)
    assert_same(list(twin), list(loader))


def through_pickle(loader):
    return pickle.loads(pickle.dumps(loader))


TWINS = pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, through_pickle])


@TWINS
def test_a_loader_can_be_copied(loader_class, twin_of):
    loader = loader_class(Squares(4), batch_size=2, num_workers=1)
    twin = twin_of(loader)
    assert type(twin) is loader_class
    assert_same(list(twin), list(loader))


@TWINS
def test_a_loader_can_be_copied_after_an_epoch(loader_class, twin_of):
    loader = loader_class(Squares(4), batch_size=2, num_workers=1)
    expected = list(loader)
    twin = twin_of(loader)
    assert_same([list(twin), list(loader)], [expected, expected])


@TWINS
def test_a_copy_runs_side_by_side_with_its_original(loader_class, twin_of):
    loader = loader_class(Squares(40), batch_size=2, num_workers=1)
    expected = list(loader)
    pairs = list(zip(loader, twin_of(loader), strict=True))
    assert_same([list(column) for column in zip(*pairs, strict=True)], [expected, expected])


@pytest.mark.parametrize("twin_of", [copy.deepcopy, through_pickle])
def test_running_persistent_workers_cannot_be_copied(loader_class, twin_of):
    loader = loader_class(Squares(4), num_workers=1, persistent_workers=True)
    list(loader)
    with pytest.raises(NotImplementedError):
        twin_of(loader)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_workers", 2),
        ("collate_fn", as_given),
        ("worker_init_fn", mark_dataset),
        ("timeout", 30),
        ("prefetch_factor", 1),
        ("pin_memory", False),
        ("generator", seeded()),
        ("in_order", False),
    ],
)
def test_other_attributes_may_be_set_before_iterating(loader_class, name, value):
    loader = loader_class(Ints(4), num_workers=1)
    setattr(loader, name, value)
    assert getattr(loader, name) is value
    assert sorted(int(batch[0]) for batch in loader) == [0, 1, 2, 3]


def test_workers_may_be_switched_off_later(loader_class):
    loader = loader_class(Ints(4), num_workers=1)
    loader.num_workers = 0
    iterator = iter(loader)
    assert not hasattr(iterator, "_workers")
    assert len(list(iterator)) == 4


def test_an_attribute_of_the_users_own_may_be_set(loader_class):
    loader = loader_class(Ints())
    loader.note = "mine"
    assert loader.note == "mine"


def test_no_process_starts_before_iterating(loader_class):
    before = descendants()
    loader = loader_class(Ints(), num_workers=2, persistent_workers=True)
    len(loader)
    assert descendants() == before
    assert loader._iterator is None
