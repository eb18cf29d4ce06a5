"""torch's default collate in a worker: the same batches, in the slab."""

from __future__ import annotations

import collections

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from penstock._arena.segment import Segment
from penstock._arena.slab import SlabWriter
from penstock._engine.collate import SMALL, collate_into
from penstock._engine.rows import Rows

Pair = collections.namedtuple("Pair", "left right")


@pytest.fixture(autouse=True)
def _own_table(monkeypatch):
    monkeypatch.setattr(torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map))


@pytest.fixture
def writer():
    made = SlabWriter()
    made.learn(0, Segment.create().fd, 0)
    collate_into(made, Rows(made))
    yield made
    made.close()


def test_default_collate_writes_into_the_slab(writer):
    writer.begin(0, 0, 0)
    batch = default_collate([torch.ones(5000), torch.zeros(5000)])
    assert writer.offset_of(batch.data_ptr()) == 0
    assert batch.sum(1).tolist() == [5000, 0]


def test_default_collate_writes_every_field_into_the_slab(writer):
    writer.begin(0, 0, 0)
    batch = default_collate([{"a": torch.ones(5000), "b": [torch.zeros(5000)]}] * 2)
    assert writer.offset_of(batch["a"].data_ptr()) == 0
    assert writer.offset_of(batch["b"][0].data_ptr()) == 40000


@pytest.mark.parametrize(
    "sample", [torch.ones(0), torch.ones(2).as_subclass(type("Sub", (torch.Tensor,), {}))]
)
def test_what_gains_nothing_from_the_slab_is_collated_beside_it(writer, sample):
    writer.begin(0, 0, 0)
    batch = default_collate([sample, sample])
    assert batch.shape == (2, *sample.shape)
    assert writer.nbytes == 0


def test_without_a_slab_default_collate_is_ordinary(writer):
    assert default_collate([torch.ones(1), torch.zeros(1)]).tolist() == [[1], [0]]


def test_tensors_that_do_not_fit_are_refused_in_torchs_words(writer):
    writer.begin(0, 0, 0)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        default_collate([torch.ones(1), torch.zeros(2)])


def test_sparse_tensors_are_refused_in_torchs_words(writer):
    writer.begin(0, 0, 0)
    with pytest.raises(RuntimeError, match="sparse"):
        default_collate([torch.eye(2).to_sparse()] * 2)


def test_a_users_own_collate_for_tensors_stays(monkeypatch):
    def mine(batch, *, collate_fn_map=None):
        return "mine"

    torch_collate.default_collate_fn_map[torch.Tensor] = mine
    writer = SlabWriter()
    collate_into(writer, Rows(writer))
    assert torch_collate.default_collate_fn_map[torch.Tensor] is mine


def test_small_tensors_are_stacked_beside_the_slab(writer):
    writer.begin(0, 0, 0)
    batch = default_collate([torch.ones(SMALL // 8 - 1), torch.zeros(SMALL // 8 - 1)])
    assert writer.offset_of(batch.data_ptr()) is None
    assert batch.shape == (2, SMALL // 8 - 1)


@pytest.mark.parametrize("batch", [[1, 2], [1.5, -2.0], [-(2**63), 2**63 - 1]], ids=str)
def test_numbers_are_put_into_the_slab(writer, batch):
    expected = torch.tensor(batch, dtype=torch.float64 if isinstance(batch[0], float) else None)
    writer.begin(0, 0, 0)
    got = default_collate(batch)
    assert writer.offset_of(got.data_ptr()) is not None
    assert got.dtype is expected.dtype
    assert torch.equal(got, expected)


def stock_collate(batch):
    """What torch's own functions make of a batch."""
    table = {
        torch.Tensor: torch_collate.collate_tensor_fn,
        int: torch_collate.collate_int_fn,
        float: torch_collate.collate_float_fn,
        str: torch_collate.collate_str_fn,
    }
    return torch_collate.collate(batch, collate_fn_map=table)


@pytest.mark.parametrize(
    "batch",
    [
        [True, False], [1, 2.5], [1.5, 2], [1, True], [True, 7], [(1, 2.0), (3, 4.0)], [(1,), [2]], [(), ()],
        [((1, "a"), 2)] * 3, [Pair(1, 2), Pair(3, 4)], [[1, (2,)], [3, (4,)]], [{"a": (1, 2)}, {"a": (3, 4)}],
        [(0.0, torch.ones(2))] * 2,
    ],
    ids=str,
)  # fmt: skip
def test_the_result_is_torchs(writer, batch):
    expected = stock_collate(batch)
    writer.begin(0, 0, 0)
    got = default_collate(batch)
    assert repr(got) == repr(expected)


@pytest.mark.parametrize(
    "batch", [[1, "a"], [2**63, 1], [(1, 2), (1,)], [(1, 2), 3], [1.0, None], [(1, 2), None]], ids=str
)
def test_the_refusal_is_torchs(writer, batch):
    with pytest.raises(Exception) as expected:
        stock_collate(batch)
    writer.begin(0, 0, 0)
    with pytest.raises(type(expected.value)) as got:
        default_collate(batch)
    assert str(got.value) == str(expected.value)
