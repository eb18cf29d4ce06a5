"""Where penstock differs from torch's DataLoader on purpose. This is the documented list.

Only penstock runs here: with torch the same programs hang, lose samples or corrupt them.
"""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest
import torch

from .comparing import assert_same, iterating
from .datasets import Failing, Ints, Made, Squares, TwoArgumentsError, first_of, outcomes
from .payloads import CHANGED_BY_TORCH, MakePayload


def delivered(penstock_class, make):
    """The one batch of a loader whose worker calls `make`."""
    (batch,) = penstock_class(Made(make, size=1), num_workers=1, collate_fn=first_of)
    return batch


def test_a_prefetch_of_zero_is_refused_at_once(penstock_class):
    # torch: takes it, and raises AssertionError when the iterator is made.
    with pytest.raises(ValueError, match="prefetch_factor"):
        penstock_class(Ints(), num_workers=1, prefetch_factor=0)


def test_a_delivered_tensor_does_not_count_as_shared(penstock_class):
    # torch: is_shared() is True, because each tensor is a shared-memory file of its own.
    (batch,) = penstock_class(Squares(2), batch_size=2, num_workers=1)
    assert not any(tensor.is_shared() for tensor in batch)


def test_stop_iteration_in_getitem_is_an_error(penstock_class):
    # torch: the epoch silently ends there.
    found = outcomes(penstock_class(Failing(StopIteration("oops")), batch_size=None, num_workers=1))
    assert [*found[:2], *found[3:]] == [0, 1, 3, 4, 5]
    assert isinstance(found[2], RuntimeError)
    assert "StopIteration" in str(found[2])


@pytest.mark.parametrize(
    "make",
    [lambda: (row for row in range(3)), threading.Lock, lambda: {"deep": [memoryview(b"raw")]}],
    ids=["generator", "lock", "memory view"],
)
def test_a_batch_that_cannot_be_pickled_is_an_error(penstock_class, make):
    # torch: hangs for ever.
    found = outcomes(penstock_class(Made(make, size=2), num_workers=1, collate_fn=first_of))
    assert len(found) == 2
    assert all(isinstance(one, Exception) and "pickle" in str(one) for one in found)


def test_batches_after_one_that_cannot_be_pickled_still_come(penstock_class):
    class OneBad(Ints):
        def __getitem__(self, index):
            return threading.Lock() if index == 1 else index

    found = outcomes(penstock_class(OneBad(4), num_workers=1, collate_fn=first_of))
    assert [found[0], *found[2:]] == [0, 2, 3]
    assert isinstance(found[1], Exception)


def test_a_tensor_inside_a_graph_is_an_error(penstock_class):
    # torch: refuses to serialise a non-leaf that requires grad, and hangs for ever.
    def make():
        return torch.ones(2, requires_grad=True) * 2

    (error,) = outcomes(penstock_class(Made(make, size=1), num_workers=1, collate_fn=first_of))
    assert isinstance(error, RuntimeError)
    assert "requires grad" in str(error)


def test_an_exception_of_a_local_class_keeps_its_text(penstock_class):
    # torch: hangs for ever, because the class cannot be pickled.
    class LocalError(Exception):
        pass

    found = outcomes(penstock_class(Failing(LocalError("no such image")), num_workers=1))
    assert isinstance(found[2], Exception)
    assert "LocalError" in str(found[2])
    assert "no such image" in str(found[2])
    assert len(found) == 6


def test_an_exception_that_needs_several_arguments_keeps_its_type(penstock_class):
    # torch: a RuntimeError, so that `except TwoArgumentsError` never fires.
    found = outcomes(penstock_class(Failing(TwoArgumentsError(7, "no such image")), num_workers=1))
    assert type(found[2]) is TwoArgumentsError
    assert (found[2].code, found[2].text) == (7, "no such image")


def test_an_exception_that_holds_a_lock_keeps_its_text(penstock_class):
    # As with torch, which sends type and text only: attributes of the exception are not shipped.
    error = ValueError("no such image")
    error.lock = threading.Lock()
    found = outcomes(penstock_class(Failing(error), num_workers=1))
    assert type(found[2]) is ValueError
    assert "no such image" in str(found[2])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_local_class_may_be_the_dataset(penstock_class, method):
    # torch: only with fork. With spawn and forkserver it raises AttributeError.
    class Local(Ints):
        def __getitem__(self, index):
            return index * 10

    loader = penstock_class(Local(3), num_workers=1, multiprocessing_context=method)
    assert [int(batch) for batch in loader] == [0, 10, 20]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_lambdas_and_closures_work_with_every_start_method(penstock_class, method):
    # torch: only with fork.
    offset = 5
    marks = []
    loader = penstock_class(
        Made(lambda: offset, size=2),
        num_workers=1,
        collate_fn=lambda rows: [row + offset for row in rows],
        worker_init_fn=lambda number: marks.append(number + offset),
        multiprocessing_context=method,
    )
    assert list(loader) == [[10], [10]]


def test_a_generator_in_the_dataset_can_be_shipped(penstock_class):
    # torch: with spawn and forkserver the worker dies, its state tensor is gone before it is read.
    class Keeps(Ints):
        def __init__(self):
            super().__init__(1)
            self.generator = torch.Generator().manual_seed(3)

        def __getitem__(self, index):
            return torch.rand(2, generator=self.generator)

    expected = torch.rand(2, generator=torch.Generator().manual_seed(3)).reshape(1, 2)
    loader = penstock_class(Keeps(), num_workers=1, multiprocessing_context="spawn")
    assert_same(list(loader), [expected])


@pytest.mark.parametrize("name", ["conjugate view", "negative view", "array big-endian"])
def test_a_payload_that_torch_changes_arrives_as_it_was_made(penstock_class, name):
    # torch: drops the conjugation and the sign without a word, and the byte order of arrays.
    assert_same(delivered(penstock_class, MakePayload(name)), CHANGED_BY_TORCH[name]())


def test_conjugate_views_are_batched(penstock_class):
    # torch: the default collate refuses them in a worker, though not in the main process.
    def make():
        return torch.tensor([1 + 2j]).conj()

    (batch,) = penstock_class(Made(make), batch_size=2, num_workers=1)
    assert_same(batch, torch.tensor([[1 - 2j], [1 - 2j]]))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:TypedStorage is deprecated")
def test_a_quantized_tensor_arrives_as_it_was_made(penstock_class):
    # torch: delivers a tensor that has lost its scale, and any use of it is an internal error.
    got = delivered(penstock_class, MakePayload("quantized"))
    assert_same(got, CHANGED_BY_TORCH["quantized"]())


KEPT = torch.arange(6.0)


def kept_by_the_dataset():
    return KEPT


def test_a_tensor_that_the_dataset_keeps_is_not_tied_to_the_delivered_one(penstock_class):
    # torch: moves the kept tensor to shared memory; what the consumer writes is in the next sample.
    loader = penstock_class(
        Made(kept_by_the_dataset, size=3),
        num_workers=1,
        collate_fn=first_of,
        prefetch_factor=1,
    )
    for batch in loader:
        assert_same(batch, torch.arange(6.0))
        batch.zero_()
    assert_same(KEPT, torch.arange(6.0))


def test_a_small_view_does_not_ship_its_large_storage(penstock_class):
    # torch: puts the whole storage into shared memory.
    got = delivered(penstock_class, MakePayload("small view of a large storage"))
    assert got.untyped_storage().nbytes() < 4096


class LoaderWithWorkersInside(Ints):
    """Runs a loader of its own, with a worker, for each sample."""

    def __init__(self, loader_class):
        super().__init__(2)
        self.loader_class = loader_class

    def __getitem__(self, index):
        return sum(int(row) for row in self.loader_class(Ints(index + 2), num_workers=1))


def test_a_worker_may_have_workers_of_its_own(penstock_class):
    # torch: "daemonic processes are not allowed to have children".
    loader = penstock_class(LoaderWithWorkersInside(penstock_class), num_workers=1)
    assert [int(batch) for batch in loader] == [1, 3]


class Parents(Ints):
    """Who started the worker."""

    def __getitem__(self, index):
        return os.getppid()


def test_a_worker_is_a_grandchild_of_the_program(penstock_class):
    # torch: a child, listed by multiprocessing.active_children(). Ours is forked by the zygote.
    with iterating(penstock_class(Parents(1), batch_size=None, num_workers=1)) as iterator:
        assert multiprocessing.active_children() == []
        assert next(iterator) != os.getpid()
