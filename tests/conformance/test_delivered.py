"""A delivered batch belongs to the consumer: to keep, to change, to save."""

from __future__ import annotations

import copy
import gc
import io
import pickle

import pytest
import torch

from .comparing import assert_same
from .datasets import Made, Squares, as_given


def one_batch(loader_class):
    """The first of several batches."""
    first, *_ = loader_class(Squares(12), batch_size=4, num_workers=1)
    return first


EXPECTED = [torch.arange(4), torch.arange(4.0).square().reshape(4, 1).expand(4, 3)]


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("collate_fn", [None, as_given])
def test_all_batches_of_an_epoch_can_be_kept(loader_class, num_workers, collate_fn):
    settings = {"batch_size": 3, "collate_fn": collate_fn}
    kept = list(loader_class(Squares(120), num_workers=num_workers, **settings))
    assert_same(kept, list(torch.utils.data.DataLoader(Squares(120), **settings)))


def test_batches_of_several_epochs_can_be_kept(loader_class):
    loader = loader_class(Squares(), batch_size=4, num_workers=1, persistent_workers=True)
    kept = [list(loader) for _ in range(3)]
    expected = list(torch.utils.data.DataLoader(Squares(), batch_size=4))
    assert_same(kept, [expected] * 3)


def test_a_batch_outlives_its_loader(loader_class):
    loader = loader_class(Squares(4), batch_size=4, num_workers=1)
    iterator = iter(loader)
    kept = next(iterator)
    del iterator, loader
    gc.collect()
    assert_same(kept, EXPECTED)


def test_a_view_of_a_batch_outlives_the_batch(loader_class):
    views = []
    for rows in loader_class(Squares(60), batch_size=4, num_workers=1):
        views.append(rows[1][1:3])
        del rows
    gc.collect()
    for number, view in enumerate(views):
        assert_same(view[:, 0], torch.tensor([4.0 * number + 1, 4.0 * number + 2]).square())


def test_an_array_made_from_a_batch_outlives_it(loader_class):
    arrays = [rows[0].numpy() for rows in loader_class(Squares(60), batch_size=4, num_workers=1)]
    gc.collect()
    assert [row for array in arrays for row in array] == list(range(60))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_writing_into_a_batch_changes_no_other(loader_class, num_workers):
    loader = loader_class(Squares(40), batch_size=4, num_workers=num_workers)
    expected = list(torch.utils.data.DataLoader(Squares(40), batch_size=4))
    for number, rows in enumerate(loader):
        assert_same(rows, expected[number])
        rows[1].fill_(-1)
        rows[0].zero_()


def test_writing_into_a_batch_changes_nothing_in_the_next_epoch(loader_class):
    loader = loader_class(Squares(8), batch_size=4, num_workers=1, persistent_workers=True)
    for rows in loader:
        rows[1].fill_(-1)
    assert_same(list(loader), list(torch.utils.data.DataLoader(Squares(8), batch_size=4)))


def test_writing_into_one_field_changes_no_other_field(loader_class):
    batch = one_batch(loader_class)
    batch[0].fill_(-1)
    assert_same(batch[1], EXPECTED[1])


def test_a_batch_can_be_pickled(loader_class):
    batch = one_batch(loader_class)
    assert_same(pickle.loads(pickle.dumps(batch)), EXPECTED)


def test_a_batch_can_be_saved_and_loaded(loader_class):
    batch = one_batch(loader_class)
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    assert_same(torch.load(file), EXPECTED)


def test_saving_a_batch_writes_no_more_than_the_batch(loader_class):
    batch = one_batch(loader_class)
    file = io.BytesIO()
    torch.save(batch, file)
    assert len(file.getvalue()) < 8192


def test_a_batch_can_be_copied_deeply(loader_class):
    batch = one_batch(loader_class)
    twin = copy.deepcopy(batch)
    batch[1].zero_()
    assert_same(twin[1], EXPECTED[1])


def test_a_batch_can_be_moved_to_shared_memory(loader_class):
    batch = one_batch(loader_class)
    batch[1].share_memory_()
    assert batch[1].is_shared()
    assert_same(batch, EXPECTED)


def test_an_array_of_a_batch_shares_its_memory(loader_class):
    batch = one_batch(loader_class)
    batch[1].numpy()[0, 0] = 99
    assert batch[1][0, 0] == 99


def test_a_batch_can_require_grad(loader_class):
    batch = one_batch(loader_class)
    rows = batch[1].requires_grad_()
    (rows * 2).sum().backward()
    assert_same(rows.grad, torch.full((4, 3), 2.0))


def test_a_batch_can_be_seen_as_another_dtype(loader_class):
    batch = one_batch(loader_class)
    assert_same(batch[1].view(torch.int32), EXPECTED[1].contiguous().view(torch.int32))


def test_a_batch_can_be_reshaped_and_transposed(loader_class):
    batch = one_batch(loader_class)
    assert_same(batch[1].view(-1), EXPECTED[1].reshape(-1))
    assert_same(batch[1].t(), EXPECTED[1].t())


def test_each_tensor_of_a_batch_fills_its_own_storage(loader_class):
    batch = one_batch(loader_class)
    for tensor in batch:
        assert tensor.storage_offset() == 0
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_a_small_batch_is_aligned_for_vector_instructions(loader_class):
    batch = one_batch(loader_class)
    assert [tensor.data_ptr() % 64 for tensor in batch] == [0, 0]


def test_a_large_batch_is_aligned_for_vector_instructions(loader_class):
    dataset = Made(lambda: (torch.ones(30_001), torch.ones(5, dtype=torch.uint8)), size=4)
    for batch in loader_class(dataset, batch_size=2, num_workers=1):
        assert [tensor.data_ptr() % 64 for tensor in batch] == [0, 0]


def test_a_batch_is_contiguous_and_on_the_cpu(loader_class):
    batch = one_batch(loader_class)
    for tensor in batch:
        assert tensor.is_contiguous()
        assert tensor.device.type == "cpu"


def test_a_batch_is_a_leaf_that_no_graph_holds(loader_class):
    batch = one_batch(loader_class)
    for tensor in batch:
        assert tensor.is_leaf
        assert tensor.grad_fn is None
        assert not tensor.requires_grad


def test_a_delivered_parameter_can_be_trained(loader_class):
    (batch,) = loader_class(
        Made(lambda: torch.nn.Parameter(torch.ones(2)), size=1), num_workers=1, batch_size=None
    )
    batch.sum().backward()
    assert_same(batch.grad, torch.ones(2))


def test_batches_dropped_at_once_are_still_right(loader_class):
    loader = loader_class(Made(lambda: torch.arange(50_000), size=40), batch_size=1, num_workers=2)
    expected = torch.arange(50_000).reshape(1, -1)
    assert [torch.equal(rows, expected) for rows in loader] == [True] * 40


class Swelling:
    """Samples from a few bytes to megabytes and back."""

    sizes = (1, 10, 400_000, 3, 1_000_000, 0, 70_000, 2, 500_000, 1)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        return torch.full((self.sizes[index],), index, dtype=torch.int32), str(index)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_batches_of_very_different_size_can_all_be_kept(loader_class, num_workers):
    kept = list(loader_class(Swelling(), num_workers=num_workers))
    assert_same(kept, list(torch.utils.data.DataLoader(Swelling())))


class Blank:
    """Tensors with and without elements."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.full((2,), index), torch.empty(0)


def test_the_default_device_of_the_consumer_does_not_move_a_batch(loader_class):
    loader = loader_class(Blank(), num_workers=1)
    iterator = iter(loader)
    with torch.device("meta"):
        batches = list(iterator)
    assert {tensor.device.type for batch in batches for tensor in batch} == {"cpu"}


def test_the_default_dtype_of_the_consumer_does_not_change_a_batch(loader_class):
    iterator = iter(loader_class(Blank(), num_workers=1))
    torch.set_default_dtype(torch.float64)
    try:
        batches = list(iterator)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {batch[1].dtype for batch in batches} == {torch.float32}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_batches_taken_without_grad_are_as_with_torch(loader_class, mode):
    def traits(cls):
        with mode():
            return [
                (tensor.requires_grad, tensor.is_inference(), tensor.tolist())
                for batch in cls(Blank(), num_workers=1)
                for tensor in batch
            ]

    assert traits(loader_class) == traits(torch.utils.data.DataLoader)
