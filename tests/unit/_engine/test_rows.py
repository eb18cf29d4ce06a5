"""Samples that lie in the slab before they are collated."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from penstock._arena.segment import Segment
from penstock._arena.slab import SlabWriter
from penstock._engine.collate import collate_into
from penstock._engine.rows import LARGE, Rows

Pair = namedtuple("Pair", "x y")


@pytest.fixture
def writer():
    made = SlabWriter()
    made.learn(0, Segment.create().fd, 0)
    made.begin(0, 0, 0)
    yield made
    made.close()


@pytest.fixture
def rows(writer, monkeypatch):
    """Rows in a slab, and a default collate that knows of them."""
    monkeypatch.setattr(torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map))
    made = Rows(writer)
    collate_into(writer, made)
    return made


def large(value=0.0, dtype=torch.float32):
    return torch.full((LARGE,), value).to(dtype)


def moved(rows, samples):
    rows.begin(len(samples))
    return [rows.move(sample) for sample in samples]


def lies_in(writer, tensor):
    return writer.offset_of(tensor.data_ptr()) is not None


# ---- what moves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        lambda part: part,
        lambda part: (part, 1),
        lambda part: [1, part],
        lambda part: {"x": part, "y": 1},
        lambda part: (part, part * 2, "name"),
    ],
    ids=["alone", "tuple", "list", "dict", "two of them"],
)
@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray])
def test_a_moved_sample_is_equal_to_the_original(rows, wrap, kind):
    samples = [wrap(large(value) if kind is torch.Tensor else large(value).numpy()) for value in range(3)]
    got = moved(rows, samples)
    for one, other in zip(got, samples, strict=True):
        assert type(one) is type(other)
        assert str(default_collate([one])) == str(default_collate([other]))


def test_a_large_tensor_moves_into_the_slab(rows, writer):
    (got,) = moved(rows, [large(5)])
    assert lies_in(writer, got)
    assert got[0] == 5


def test_a_large_array_moves_into_the_slab(rows, writer):
    ((array, _),) = moved(rows, [(large(5).numpy().copy(), 1)])
    assert type(array) is np.ndarray
    assert writer.offset_of(array.ctypes.data) is not None


def test_the_users_own_object_is_left_alone(rows):
    sample = {"x": large(5)}
    before = sample["x"]
    (got,) = moved(rows, [sample])
    assert got is not sample
    assert sample["x"] is before


def test_samples_that_moved_are_the_rows_of_one_tensor(rows, writer):
    batch = default_collate(moved(rows, [large(value) for value in range(3)]))
    assert batch.shape == (3, LARGE)
    assert batch[:, 0].tolist() == [0, 1, 2]
    assert writer._used == 3 * 4 * LARGE  # nothing was written twice


def test_arrays_that_moved_are_the_rows_of_one_tensor(rows, writer):
    batch = default_collate(moved(rows, [(large(value).numpy(), value) for value in range(3)]))
    assert batch[0][:, 0].tolist() == [0, 1, 2]
    assert writer.offset_of(batch[0].data_ptr()) == 0


def test_a_transposed_sample_becomes_contiguous_as_in_torch(rows):
    samples = [torch.arange(LARGE).view(2, -1).t()] * 2
    got = default_collate(moved(rows, samples))
    assert torch.equal(got, torch.stack(samples))
    assert got.is_contiguous()


# ---- what stays ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        torch.zeros(LARGE // 4 - 1),
        (torch.zeros(3), np.zeros(3), 1, "x"),
        Pair(large(), 1),
        {"x": {"y": large()}},
        large().requires_grad_(),
        large().as_subclass(type("Sub", (torch.Tensor,), {})),
        np.zeros(LARGE, object),
        np.zeros(LARGE, ">f4"),
        np.zeros(LARGE, "c8"),
        "text",
        None,
    ],
    ids=[
        "small", "small parts", "named tuple", "deeper", "gradient", "subclass", "objects", "other bytes",
        "complex array", "text", "none",
    ],
)  # fmt: skip
def test_whatever_does_not_fit_stays_as_it_is(rows, writer, sample):
    (got,) = moved(rows, [sample])
    assert got is sample
    assert writer._used == 0


@pytest.mark.parametrize(
    "odd",
    [torch.zeros(LARGE + 1), large(dtype=torch.int64), large().numpy()[:5], 7, None, (large(),), {}],
    ids=["shape", "dtype", "array", "number", "none", "tuple", "dict"],
)
def test_a_sample_unlike_the_first_stays_as_it_is(rows, odd):
    assert moved(rows, [large(), odd])[1] is odd


@pytest.mark.parametrize(("first", "odd"), [({"x": large()}, {"y": 1}), ((1, large()), (1,))])
def test_a_sample_without_the_part_stays_as_it_is(rows, first, odd):
    assert moved(rows, [first, odd])[1] is odd


def test_more_samples_than_were_announced_stay_as_they_are(rows):
    rows.begin(1)
    rows.move(large(1))
    second = large(2)
    assert rows.move(second) is second


# ---- collate says what it always says -----------------------------------------------------------


def test_a_sample_of_another_shape_is_refused_in_torchs_words(rows):
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        default_collate(moved(rows, [large(), torch.zeros(LARGE + 1)]))


def test_a_sample_that_is_no_tensor_is_refused_in_torchs_words(rows):
    with pytest.raises(TypeError, match="expected Tensor as element 1 in argument 0, but got NoneType"):
        default_collate(moved(rows, [large(), None]))


def test_rows_in_another_order_are_collated_in_that_order(rows):
    one, other = moved(rows, [large(1), large(2)])
    assert default_collate([other, one])[:, 0].tolist() == [2, 1]


def test_some_of_the_rows_are_collated_alone(rows):
    got = moved(rows, [large(value) for value in range(3)])
    assert default_collate(got[:2])[:, 0].tolist() == [0, 1]
    assert default_collate([got[0]] * 3)[:, 0].tolist() == [0, 0, 0]


def test_slices_of_rows_are_collated_as_slices(rows):
    got = moved(rows, [large(1), large(2)])
    batch = default_collate([row[:3] for row in got])
    assert batch.tolist() == [[1, 1, 1], [2, 2, 2]]


def test_other_tensors_are_collated_beside_them(rows):
    moved(rows, [large(1), large(2)])
    assert default_collate([torch.zeros(1), torch.ones(1)]).tolist() == [[0], [1]]


# ---- the end ------------------------------------------------------------------------------------


def test_nothing_of_a_batch_is_held_after_its_end(rows, writer):
    moved(rows, [large()])
    rows.end()
    assert writer.finish() is False


def test_the_next_batch_has_rows_of_its_own(rows, writer):
    first = default_collate(moved(rows, [large(1), large(2)]))
    rows.end()
    second = default_collate(moved(rows, [large(3)]))
    assert second.shape == (1, LARGE)
    assert first[:, 0].tolist() == [1, 2]
