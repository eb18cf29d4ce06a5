"""The short form of plain batches: what is plain, what is not, and that nothing is lost on the way."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock._arena import outline
from penstock._arena.codec import decode, encode
from penstock._arena.outline import NotPlain, sketch

Pair = collections.namedtuple("Pair", "left right")


def refuse(tensor, nbytes):
    raise AssertionError("no tensor here")


def test_scalars_and_containers_travel_without_a_pickle():
    batch = {"a": [1, 2.5, "x", b"y", None, True, 3j], 7: ("z", [{}]), None: -0.0}
    assert outline.draw(sketch(batch, refuse), memoryview(b"")) == batch


LOOP: list = []
LOOP.append(LOOP)
TWIN = [1, [2]]


@pytest.mark.parametrize(
    "batch",
    [
        {1, 2}, Pair(1, 2), collections.OrderedDict(a=1), np.float64(1), np.ones(2), [...], {(1, 2): 3},
        {"a": object()}, type("Str", (str,), {})("a"), LOOP, [TWIN, TWIN], bytearray(b"a"), memoryview(b"a"),
        torch.ones(2, requires_grad=True), torch.ones(4, 4).t(), torch.ones(2, 2).to_sparse(), torch.ones(0),
        torch.ones(2, dtype=torch.complex64).conj(), torch.nn.Parameter(torch.ones(1)), [torch.ones(1), {1}],
    ],
    ids=lambda batch: type(batch).__name__,
)  # fmt: skip
def test_anything_else_is_left_to_pickle(batch):
    with pytest.raises(NotPlain):
        sketch(batch, lambda tensor, nbytes: 0)


def test_one_tensor_in_two_places_is_left_to_pickle():
    tensor = torch.ones(2)
    with pytest.raises(NotPlain):
        sketch([tensor, tensor], lambda tensor, nbytes: 0)


def test_a_batch_nested_too_deep_for_an_outline_still_arrives(writer):
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(RecursionError):  # as with a pickle: torch refuses it too
        encode(deep, writer)


def test_what_was_placed_before_an_outline_failed_is_not_placed_again(writer):
    tensor = torch.arange(1000.0)
    place = encode([tensor, {1, 2}], writer)
    assert not place.is_plain
    assert place.end < 2 * tensor.nbytes
    assert torch.equal(decode(memoryview(writer.buffer()), place)[0], tensor)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
TENSORS = st.builds(
    lambda shape, dtype: torch.arange(int(np.prod(shape))).reshape(shape).to(dtype),
    st.lists(st.integers(1, 3), max_size=3),
    st.sampled_from([torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.uint8, torch.float16]),
)
BATCHES = st.recursive(
    SCALARS | TENSORS,
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.lists(parts, max_size=4).map(tuple)
        | st.dictionaries(SCALARS, parts, max_size=4)
    ),
    max_leaves=12,
)


def flat(value):
    """A form that can be compared: types, values and the bits of tensors."""
    if isinstance(value, torch.Tensor):
        return (
            "tensor",
            value.dtype,
            tuple(value.shape),
            value.float().tolist(),
            value.untyped_storage().nbytes(),
        )
    if isinstance(value, dict):
        return [(type(key), key, flat(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return (type(value), [flat(each) for each in value])
    return (type(value), value)


@given(BATCHES)
def test_every_plain_batch_comes_back_as_it_was(batch):
    memory = bytearray(1 << 16)
    used = 0

    def place(tensor, nbytes):
        nonlocal used
        start, used = used, used + -(-nbytes // 64) * 64
        memory[start : start + nbytes] = bytes(tensor.contiguous().untyped_storage())
        return start

    assert flat(outline.draw(sketch(batch, place), memoryview(memory))) == flat(batch)
