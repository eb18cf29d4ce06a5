"""Into the slab and out again: the same batch, in storages of its own size."""

from __future__ import annotations

import collections
import io
import pickle
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from penstock._arena.codec import Encoder, Hold, cloud_encoder, decode, encode, is_dense
from penstock._arena.slab import SMALLEST


@dataclass
class Sample:
    image: torch.Tensor
    label: int


Pair = collections.namedtuple("Pair", "left right")


def send(writer, batch, *, copy=False, pickler=None):
    place = encode(batch, writer, pickler)
    return decode(memoryview(writer.buffer()), place, copy=copy)


def bits(tensor):
    """The bytes of a tensor, whatever its type."""
    return bytes(tensor.contiguous().untyped_storage()[: tensor.nbytes])


# ---- kinds of tensors ---------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex32,
        torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    ],
    ids=str,
)  # fmt: skip
def test_a_tensor_of_every_type_comes_back(writer, dtype, copy):
    tensor = torch.arange(24, dtype=torch.uint8).repeat(4).view(dtype)
    if dtype is torch.bool:
        tensor = torch.tensor([True, False, True])
    got = send(writer, tensor, copy=copy)
    assert got.dtype is dtype
    assert got.shape == tensor.shape
    assert bits(got) == bits(tensor)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (2, 1, 3, 1)])
def test_every_shape_comes_back(writer, shape):
    tensor = torch.randn(shape)
    got = send(writer, tensor)
    assert got.shape == shape
    assert torch.equal(got, tensor)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_an_empty_tensor_comes_back(writer, shape):
    got = send(writer, torch.empty(shape, dtype=torch.int16))
    assert got.shape == shape
    assert got.dtype is torch.int16


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t.transpose(1, 3),
        lambda t: t.permute(3, 0, 2, 1),
    ],
    ids=["channels_last", "transposed", "permuted"],
)
def test_strides_of_a_dense_tensor_survive(writer, change):
    tensor = change(torch.randn(2, 3, 4, 5))
    got = send(writer, tensor)
    assert got.stride() == tensor.stride()
    assert torch.equal(got, tensor)


@pytest.mark.parametrize(
    "change",
    [lambda t: t[:, ::2], lambda t: t[:, 1:3], lambda t: t[0].expand(6, 8), lambda t: t.diagonal()],
    ids=["strided", "cut", "expanded", "diagonal"],
)
def test_a_tensor_with_gaps_or_overlaps_becomes_contiguous(writer, change):
    tensor = change(torch.randn(6, 8))
    got = send(writer, tensor)
    assert got.is_contiguous()
    assert torch.equal(got, tensor)


@pytest.mark.parametrize("change", [lambda t: t.conj(), lambda t: t.conj().imag, lambda t: t.mT.conj()])
def test_lazily_conjugated_and_negated_tensors_come_back(writer, change):
    tensor = change(torch.randn(3, 4, dtype=torch.complex64))
    assert torch.equal(send(writer, tensor), tensor)


def test_a_leaf_that_requires_grad_still_does(writer):
    got = send(writer, torch.ones(3, requires_grad=True))
    assert got.requires_grad
    assert got.is_leaf


def test_an_empty_leaf_that_requires_grad_still_does(writer):
    assert send(writer, torch.ones(0, requires_grad=True)).requires_grad


def test_strides_of_a_leaf_that_requires_grad_survive(writer):
    leaf = torch.randn(3, 4).t().requires_grad_()
    got = send(writer, leaf)
    assert got.requires_grad
    assert got.stride() == leaf.stride()


def test_a_tensor_with_a_history_is_refused(writer):
    with pytest.raises(RuntimeError, match="detach it in the dataset"):
        send(writer, torch.ones(3, requires_grad=True) * 2)


def test_a_parameter_comes_back_as_one(writer):
    got = send(writer, torch.nn.Parameter(torch.arange(3.0), requires_grad=False))
    assert type(got) is torch.nn.Parameter
    assert got.tolist() == [0, 1, 2]


class Tagged(torch.Tensor):
    """A subclass of the user's."""


def test_a_subclass_comes_back_as_one(writer):
    got = send(writer, torch.arange(4.0).as_subclass(Tagged))
    assert type(got) is Tagged
    assert got.tolist() == [0, 1, 2, 3]


def test_a_small_view_of_a_subclass_does_not_drag_its_storage_along(writer):
    got = send(writer, torch.zeros(1_000_000).as_subclass(Tagged)[5:7])
    assert got.untyped_storage().nbytes() <= 8
    assert writer.nbytes == SMALLEST


def test_a_sparse_tensor_comes_back(writer):
    tensor = torch.eye(5).to_sparse()
    got = send(writer, tensor)
    assert got.layout is torch.sparse_coo
    assert torch.equal(got.to_dense(), torch.eye(5))


@pytest.mark.filterwarnings("ignore:.*Sparse CSR.*:UserWarning")
def test_a_compressed_sparse_tensor_comes_back(writer):
    got = send(writer, torch.eye(5).to_sparse_csr())
    assert got.layout is torch.sparse_csr
    assert torch.equal(got.to_dense(), torch.eye(5))


@pytest.mark.filterwarnings("ignore:.*nested.*:UserWarning")
def test_a_nested_tensor_comes_back(writer):
    parts = [torch.arange(3.0), torch.arange(5.0)]
    got = send(writer, torch.nested.nested_tensor(parts))
    assert got.is_nested
    assert all(torch.equal(one, other) for one, other in zip(got.unbind(), parts, strict=True))


@pytest.mark.filterwarnings("ignore:.*quantiz.*", "ignore:TypedStorage is deprecated:UserWarning")
def test_a_quantized_tensor_comes_back(writer):
    tensor = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8)
    got = send(writer, tensor)
    assert got.is_quantized
    assert torch.equal(got.dequantize(), tensor.dequantize())


def test_a_tensor_without_bytes_comes_back(writer):
    got = send(writer, torch.empty(3, 4, device="meta"))
    assert got.device.type == "meta"
    assert got.shape == (3, 4)


def test_an_untyped_storage_comes_back(writer):
    got = send(writer, torch.arange(4, dtype=torch.uint8).untyped_storage())
    assert type(got) is torch.UntypedStorage
    assert list(got) == [0, 1, 2, 3]


def test_an_empty_storage_comes_back(writer):
    assert send(writer, torch.UntypedStorage(0)).nbytes() == 0


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_a_typed_storage_comes_back(writer):
    got = send(writer, torch.FloatStorage([1, 2, 3]))
    assert got.dtype is torch.float32
    assert list(got) == [1, 2, 3]


# ---- other values -------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(10)[::3],
        np.zeros(0), np.zeros((3, 0)), np.array(5), np.array(["a", "bc"]), np.array([b"x", None], object),
        np.array(["2020-01-01"], "M8[D]"), np.zeros(3, [("a", "i4"), ("b", "f8")]), np.float32(2.5),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)  # fmt: skip
def test_a_numpy_array_comes_back(writer, array, copy):
    got = send(writer, array, copy=copy)
    assert type(got) is type(array)
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert np.array_equal(got, array)


def test_the_order_of_an_arrays_axes_comes_back(writer):
    assert send(writer, np.asfortranarray(np.zeros((2, 3)))).flags.f_contiguous


def test_an_array_that_cannot_be_written_arrives_writable_as_with_torch(writer):
    array = np.arange(3)
    array.flags.writeable = False
    got = send(writer, array)
    assert got.flags.writeable
    assert got.tolist() == [0, 1, 2]


def test_a_delivered_array_can_be_written(writer):
    got = send(writer, np.arange(3))
    got[0] = 9
    assert got.tolist() == [9, 1, 2]


@pytest.mark.parametrize(
    "value",
    [None, 1, 2.5, "text", b"bytes", bytearray(b"b"), True, 1 << 100, (), [], {}, {1, 2}, range(3), Ellipsis],
    ids=repr,
)
def test_plain_values_come_back(writer, value):
    assert send(writer, value) == value


def test_containers_come_back(writer):
    batch = {
        "a": [torch.arange(3), (np.arange(2), "x")],
        "b": Pair(torch.zeros(1), None),
        3: Sample(torch.ones(2), 7),
    }
    got = send(writer, batch)
    assert list(got) == ["a", "b", 3]
    assert got["a"][0].tolist() == [0, 1, 2]
    assert got["a"][1][0].tolist() == [0, 1]
    assert type(got["b"]) is Pair
    assert got[3].image.tolist() == [1, 1]
    assert got[3].label == 7


def test_one_object_in_two_places_stays_one(writer):
    tensor = torch.arange(3)
    one, other = send(writer, [tensor, tensor])
    assert one is other


def test_buffers_come_back_in_their_order(writer):
    batch = []
    for number in range(20):
        batch += [torch.full((3,), number), np.full(4, number), torch.full((2,), number).as_subclass(Tagged)]
    got = send(writer, batch)
    assert [part.tolist() for part in got] == [part.tolist() for part in batch]


def test_a_batch_that_cannot_be_pickled_raises_here(writer):
    with pytest.raises(TypeError, match="generator"):
        encode([torch.zeros(3), (x for x in ())], writer)


# ---- memory -------------------------------------------------------------------------------------


def test_every_tensor_has_a_storage_of_its_own_size(writer):
    got = send(writer, [torch.zeros(10), torch.zeros(3, dtype=torch.int16), torch.zeros(4, 5).t()])
    assert [part.untyped_storage().nbytes() for part in got] == [40, 6, 80]
    assert [part.storage_offset() for part in got] == [0, 0, 0]


def test_a_view_of_a_large_storage_is_compacted(writer):
    got = send(writer, torch.zeros(10_000_000)[5:8])
    assert got.untyped_storage().nbytes() == 12
    assert writer.nbytes == SMALLEST


def test_tensors_that_share_memory_go_on_sharing_it(writer):
    base = torch.zeros(10)
    whole, part = send(writer, [base, base[3:5]])
    part.fill_(1)
    assert whole.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]


def test_tensors_that_share_memory_lie_in_the_slab_once(writer):
    base = torch.zeros(10)
    hold = Hold(writer)
    Encoder(io.BytesIO(), hold).dump([base, base[3:5], base.view(2, 5)])
    assert hold.entries == [(0, 40), (12, 8), (0, 40)]


def test_a_tensor_is_compared_with_those_of_its_own_storage_alone(writer):
    hold = Hold(writer)
    Encoder(io.BytesIO(), hold).dump([torch.zeros(1) for _ in range(200)])
    assert max(map(len, hold._copied.values())) == 1


def test_two_parts_of_one_storage_become_independent(writer):
    base = torch.zeros(10)
    one, other = send(writer, [base[:5], base[5:]])
    one.fill_(1)
    assert other.sum() == 0


def test_a_tensor_that_lies_in_the_slab_is_not_copied(writer):
    offset = writer.allocate(40)
    tensor = torch.frombuffer(writer.buffer(), dtype=torch.float32, count=10, offset=offset)
    stream = io.BytesIO()
    hold = Hold(writer)
    Encoder(stream, hold).dump({"x": tensor, "row": tensor[3:5]})
    assert hold.entries == [(offset, 40), (offset + 12, 8)]


def test_a_tensor_written_before_the_slab_grew_is_not_copied(writer):
    offset = writer.allocate(40)
    tensor = torch.frombuffer(writer.buffer(), dtype=torch.float32, count=10, offset=offset)
    writer.allocate(10 * SMALLEST)
    hold = Hold(writer)
    Encoder(io.BytesIO(), hold).dump(tensor)
    assert hold.entries == [(offset, 40)]


def test_a_batch_larger_than_the_slab_makes_it_grow(writer):
    tensor = torch.arange(SMALLEST)
    assert torch.equal(send(writer, [torch.zeros(1), tensor])[1], tensor)


def test_the_place_says_how_far_the_batch_reaches(writer):
    place = encode([torch.zeros(10), np.zeros(3)], writer)
    assert place.buffers == 2
    assert place.end == place.table + 2 * 16 + place.skeleton
    assert place.end <= writer.nbytes


def test_nothing_of_a_batch_is_kept_after_encoding(writer, without_collector):
    batch = [torch.zeros(10), Sample(torch.ones(3), 1)]
    watch = weakref.ref(batch[1])
    encode(batch, writer)
    del batch
    assert watch() is None
    assert writer.finish() is False


def test_no_cycle_keeps_a_collated_batch(writer, without_collector):
    tensor = torch.frombuffer(writer.buffer(), dtype=torch.float32, count=10, offset=writer.allocate(40))
    encode({"x": tensor}, writer)
    del tensor
    assert writer.finish() is False


def test_no_cycle_keeps_a_batch_of_the_cloud_encoder(writer, without_collector):
    kind = cloud_encoder()
    batch = [Sample(torch.ones(3), 1)]
    watch = weakref.ref(batch[0])
    encode(batch, writer, kind)
    del batch
    assert watch() is None


def test_a_decoded_batch_is_a_view_of_the_slab(writer):
    place = encode(torch.zeros(10), writer)
    view = memoryview(writer.buffer())
    got = decode(view, place)
    view[0] = 1
    assert got[0] != 0


def test_a_copied_batch_is_independent_of_the_slab(writer):
    place = encode([torch.zeros(10), np.zeros(3)], writer)
    tensor, array = decode(memoryview(writer.buffer()), place, copy=True)
    writer.buffer()[:] = 255
    assert tensor.sum() == 0
    assert array.sum() == 0


def test_a_copied_batch_can_be_written(writer):
    tensor = send(writer, torch.zeros(3), copy=True)
    tensor += 1
    assert tensor.tolist() == [1, 1, 1]


# ---- who pickles --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [[torch.arange(3), np.arange(2), "x"], {"f": len}])
def test_the_cloud_encoder_sends_the_same(writer, batch):
    got = send(writer, batch, pickler=cloud_encoder())
    assert str(got) == str(batch)


def test_the_cloud_encoder_sends_what_has_no_name(writer):
    class Local:
        def __init__(self):
            self.x = torch.arange(3)

    got = send(writer, [Local(), lambda x: x + 1], pickler=cloud_encoder())
    assert got[0].x.tolist() == [0, 1, 2]
    assert got[1](1) == 2


def test_what_is_registered_with_copyreg_is_used(writer, monkeypatch):
    class Odd:
        def __reduce__(self):
            raise TypeError("not this way")

    import copyreg

    monkeypatch.setitem(copyreg.dispatch_table, Odd, lambda odd: (int, (7,)))
    assert send(writer, Odd()) == 7


# ---- is_dense -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(2, 3), True),
        (torch.zeros(2, 3).t(), True),
        (torch.zeros(4, 1, 3)[:, :, :], True),
        (torch.zeros(1, 5)[:, :3], True),
        (torch.zeros(()), True),
        (torch.zeros(2, 6)[:, :3], False),
        (torch.zeros(3).expand(2, 3), False),
        (torch.zeros(4, 4)[::2], False),
        (torch.zeros(5).unfold(0, 3, 1), False),
    ],
)
def test_dense_means_one_block_without_gaps(tensor, expected):
    assert is_dense(tensor) is expected


def test_the_stream_of_a_plain_batch_is_small(writer):
    place = encode(torch.zeros(1000), writer)
    assert place.skeleton < 150


def test_the_skeleton_can_be_read_by_pickle_alone(writer):
    place = encode({"a": {1}}, writer)
    start = place.table + 16 * place.buffers
    assert pickle.loads(bytes(writer.buffer()[start : start + place.skeleton])) == {"a": {1}}
