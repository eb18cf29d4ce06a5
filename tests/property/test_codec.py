"""Any batch goes into a slab and comes out the same."""

from __future__ import annotations

import collections

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock._arena.codec import decode, encode, is_dense
from penstock._arena.segment import Segment
from penstock._arena.slab import SlabWriter

DTYPES = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8,
     torch.bool, torch.complex64]
)  # fmt: skip
Point = collections.namedtuple("Point", "x y")


@st.composite
def tensors(draw):
    """Tensors of any type, shape and layout; many are views."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = torch.arange(int(np.prod(shape, dtype=int))).remainder(2 if draw(st.booleans()) else 100)
    tensor = tensor.to(draw(DTYPES)).reshape(shape)
    for _ in range(draw(st.integers(0, 2))):
        change = draw(st.sampled_from(["permute", "slice", "step", "expand", "conj", "grad"]))
        if change == "permute":
            tensor = tensor.permute(draw(st.permutations(range(tensor.ndim))))
        elif change == "slice" and tensor.ndim:
            tensor = tensor[draw(st.integers(0, 3)) :]
        elif change == "step" and tensor.ndim:
            tensor = tensor[..., :: draw(st.integers(1, 3))]
        elif change == "expand":
            tensor = tensor.unsqueeze(0).expand(draw(st.integers(1, 3)), *tensor.shape)
        elif change == "conj" and tensor.is_complex():
            tensor = tensor.conj()
    if draw(st.booleans()) and tensor.is_floating_point():
        tensor = tensor.detach().requires_grad_()
    return tensor


@st.composite
def arrays(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    array = np.arange(int(np.prod(shape, dtype=int))).astype(
        draw(st.sampled_from(["i8", "f4", "u1", "c8", "U3"]))
    )
    array = array.reshape(shape, order=draw(st.sampled_from("CF")))
    return array[::2] if array.ndim and draw(st.booleans()) else array


LEAVES = st.one_of(
    tensors(),
    arrays(),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
BATCHES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.tuples(parts, parts),
        st.builds(Point, parts, parts),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), parts, max_size=4),
    ),
    max_leaves=12,
)


def check(got, sent):
    assert type(got) is type(sent)
    if isinstance(sent, torch.Tensor):
        check_tensor(got, sent)
    elif isinstance(sent, np.ndarray):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert np.array_equal(got, sent)
        assert got.flags.writeable
    elif isinstance(sent, dict):
        assert list(got) == list(sent)
        for key in sent:
            check(got[key], sent[key])
    elif isinstance(sent, (list, tuple)):
        assert len(got) == len(sent)
        for one, other in zip(got, sent, strict=True):
            check(one, other)
    else:
        assert got == sent


def check_tensor(got, sent):
    assert (got.dtype, got.shape, got.requires_grad) == (sent.dtype, sent.shape, sent.requires_grad)
    assert torch.equal(got, sent)
    assert got.untyped_storage().nbytes() == sent.nbytes
    assert got.storage_offset() == 0
    if sent.numel() and is_dense(sent):
        # The stride of a dimension of one element means nothing.
        assert [stride for stride, size in zip(got.stride(), got.shape, strict=True) if size > 1] == [
            stride for stride, size in zip(sent.stride(), sent.shape, strict=True) if size > 1
        ]


@given(batch=BATCHES, is_copy=st.booleans(), expected=st.integers(0, 1000))
def test_a_batch_comes_out_as_it_went_in(batch, is_copy, expected):
    writer = SlabWriter()
    writer.learn(0, Segment.create().fd, 0)
    writer.begin(0, 0, expected)
    place = encode(batch, writer)
    got = decode(memoryview(writer.buffer()), place, copy=is_copy)
    check(got, batch)
    assert place.end <= writer.nbytes
    del got
    assert writer.finish() is False
    writer.close()


@given(batches=st.lists(BATCHES, min_size=2, max_size=4))
def test_a_slab_is_as_good_for_the_next_batch(batches):
    writer = SlabWriter()
    writer.learn(0, Segment.create().fd, 0)
    for batch in batches:
        writer.begin(0, 0, 0)
        place = encode(batch, writer)
        check(decode(memoryview(writer.buffer()), place), batch)
        assert writer.finish() is False
    writer.close()


@given(tensor=tensors())
def test_dense_means_that_the_elements_fill_one_block(tensor):
    offsets = {
        sum(place * stride for place, stride in zip(index, tensor.stride(), strict=True))
        for index in np.ndindex(*tensor.shape)
    }
    if tensor.numel():
        is_block = offsets == set(range(tensor.numel()))
        assert is_dense(tensor) is is_block
