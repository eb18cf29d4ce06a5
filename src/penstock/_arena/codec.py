"""The form of a batch in a slab: buffers, a table of them, and a skeleton.

    ┌────────┬────────┬─────┬──────────────────────┬─────────────────────────────┐
    │ buffer │ buffer │  …  │ table: (offset, len) │ skeleton: pickle protocol 5 │
    └────────┴────────┴─────┴──────────────────────┴─────────────────────────────┘

The skeleton is the batch with every tensor and array taken out of band; that of a plain batch is an outline
(see `outline`) and needs no table. A tensor that the collate
function already wrote into the slab is recognised by its address and costs nothing; any other is copied
in once. Decoding gives tensors and arrays that are views of the slab, each with a storage of its own
size, as torch's own batches have.

Guarantees:

* `encode` runs in the worker's main thread and raises whatever pickling raises: no batch is lost in a
  background thread.
* Strides of dense tensors (channels_last, transposed) survive; overlapping or padded ones become
  contiguous. Requires-grad of leaves survives. Sparse, nested, quantized tensors and subclasses go
  through torch's own reduction, with their storages out of band.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
from collections import ChainMap
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import torch

from penstock._arena import outline
from penstock._arena.slab import SlabWriter
from penstock._base import libc

_PLACEHOLDER = pickle.PickleBuffer(bytearray())  # stands for a tensor's bytes in the stream of buffers
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_NON_LEAF = (
    "a tensor in the batch requires grad and is not a leaf; gradients do not cross processes: "
    "detach it in the dataset"
)


class Place(NamedTuple):
    """Where a batch lies in its slab."""

    table: int  # offset of the table
    buffers: int  # entries in it
    skeleton: int  # bytes of the skeleton, which follows the table
    end: int  # bytes used in all
    is_plain: bool = False  # the skeleton is an outline


def encode(batch: Any, writer: SlabWriter, pickler: type[Encoder] | None = None) -> Place:
    """Write a batch into the writer's slab."""
    hold = Hold(writer)
    try:
        skeleton: Any = outline.sketch(batch, hold.put)
    except (outline.NotPlain, RecursionError):
        return _pickle(batch, writer, hold, pickler or Encoder)
    start = writer.allocate(len(skeleton))
    end = start + len(skeleton)
    memoryview(writer.buffer())[start:end] = skeleton
    return Place(start, 0, len(skeleton), end, is_plain=True)


def _pickle(batch: Any, writer: SlabWriter, hold: Hold, pickler: type[Encoder]) -> Place:
    stream = io.BytesIO()
    pickler(stream, hold).dump(batch)
    skeleton, entries = stream.getbuffer(), hold.entries
    table = writer.allocate(16 * len(entries) + len(skeleton))
    packed = struct.pack(f"{2 * len(entries)}Q", *(word for entry in entries for word in entry))
    view = memoryview(writer.buffer())
    split = table + len(packed)
    view[table:split] = packed
    view[split : split + len(skeleton)] = skeleton
    return Place(table, len(entries), len(skeleton), split + len(skeleton))


def decode(view: memoryview, place: Place, *, copy: bool = False) -> Any:
    """The batch at `place`, as views of the slab, or copied out of it so that it may be reused."""
    if copy:
        # torch's allocator, for its alignment; one block, so that offsets stay what they are.
        block = memoryview(torch.empty(place.end, dtype=torch.uint8, device="cpu").numpy())  # type: ignore[arg-type]
        block[:] = view[: place.end]
        view = block
    if place.is_plain:
        return outline.draw(view[place.table : place.end], view)
    words = struct.unpack_from(f"{2 * place.buffers}Q", view, place.table)
    buffers = [view[start : start + nbytes] for start, nbytes in zip(words[::2], words[1::2], strict=True)]
    split = place.table + 16 * place.buffers
    return pickle.loads(view[split : split + place.skeleton], buffers=buffers)


class Hold:
    """The buffers of one batch, in the order in which the skeleton names them."""

    def __init__(self, writer: SlabWriter) -> None:
        self.entries: list[tuple[int, int]] = []
        self._writer = writer
        # By storage: (address, bytes, offset, tensor). The tensor keeps its memory from going to another.
        self._copied: dict[int, list[tuple[int, int, int, Any]]] = {}

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Copy a buffer that pickle found (a numpy array's, say) into the slab."""
        if buffer is not _PLACEHOLDER:
            raw = buffer.raw()
            offset = self._writer.allocate(raw.nbytes)
            memoryview(self._writer.buffer())[offset : offset + raw.nbytes] = raw
            self.entries.append((offset, raw.nbytes))
        return False  # out of band

    def place(self, tensor: torch.Tensor, nbytes: int) -> pickle.PickleBuffer:
        """Put the bytes of a dense tensor into the slab, unless they are there.

        The result stands for them in the stream. The caller pickles it at once, before any other buffer:
        the order of entries is the stream's.
        """
        self.entries.append((self.put(tensor, nbytes), nbytes))
        return _PLACEHOLDER

    def put(self, tensor: torch.Tensor, nbytes: int) -> int:
        """The offset of a dense tensor's bytes in the slab, where they were or are now."""
        address = tensor.data_ptr()
        offset = self._writer.offset_of(address)
        if offset is None:
            copies = self._copied.setdefault(tensor.untyped_storage().data_ptr(), [])
            offset = _find(copies, address, nbytes)
            if offset is None:
                offset = self._copy(address, nbytes)
                copies.append((address, nbytes, offset, tensor))
        return offset

    def _copy(self, address: int, nbytes: int) -> int:
        offset = self._writer.allocate(nbytes)
        libc.memmove(self._writer.address() + offset, address, nbytes)
        return offset


def _find(copies: list[tuple[int, int, int, Any]], address: int, nbytes: int) -> int | None:
    """Where these bytes were copied to already: tensors that share memory go on sharing it."""
    for start, length, offset, _ in copies:
        if start <= address and address + nbytes <= start + length:
            return offset + address - start
    return None


class Encoder(pickle.Pickler):
    """Pickles a batch and puts its buffers into the slab."""

    # What multiprocessing and torch register for objects that cross processes (connections, CUDA
    # tensors …). CPU tensors never get that far: those reducers would use named shared memory.
    dispatch_table: Any = ChainMap(  # noqa: RUF012 - pickle's own name for it
        copyreg.dispatch_table,
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]  # noqa: SLF001
    )

    def __init__(self, stream: io.BytesIO, hold: Hold) -> None:
        # The callback must not be a method of ours: in that cycle the pickler's memo would keep the
        # batch, and with it the slab, until the next garbage collection.
        super().__init__(stream, protocol=5, buffer_callback=hold.take)
        self._hold = hold

    def reducer_override(self, value: Any) -> Any:
        """Take tensors and storages out of band; leave everything else to pickle."""
        return reduce_tensor(self._hold, value)


def cloud_encoder() -> type[Encoder]:
    """An encoder for workers of a clean zygote, whose `__main__` classes came by value.

    cloudpickle sends such a class home under the identity it came with, so that `isinstance` holds in
    the consumer.
    """
    import cloudpickle

    class CloudEncoder(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: Any = ChainMap(  # noqa: RUF012 - as above
            cloudpickle.Pickler.dispatch_table, *Encoder.dispatch_table.maps
        )

        def __init__(self, stream: io.BytesIO, hold: Hold) -> None:
            super().__init__(stream, protocol=5, buffer_callback=hold.take)
            self._hold = hold

        def reducer_override(self, value: Any) -> Any:
            reduced = reduce_tensor(self._hold, value)
            return super().reducer_override(value) if reduced is NotImplemented else reduced

    return CloudEncoder


def reduce_tensor(hold: Hold, value: Any) -> Any:
    """How a tensor, storage or read-only array is pickled; NotImplemented for anything else."""
    if type(value) is torch.Tensor:
        return _reduce_plain(hold, value)
    if isinstance(value, torch.Tensor):
        return _reduce_special(value)
    if type(value) is np.ndarray and not value.flags.writeable:
        return value.copy().__reduce_ex__(5)  # else it would arrive read-only, unlike with torch
    if isinstance(value, (torch.UntypedStorage, torch.storage.TypedStorage)):
        return _reduce_storage(hold, value)
    return NotImplemented


def _reduce_storage(hold: Hold, storage: Any) -> Any:
    is_typed = isinstance(storage, torch.storage.TypedStorage)
    # The public names of a typed storage warn of their deprecation.
    untyped = storage._untyped_storage if is_typed else storage  # noqa: SLF001
    if untyped.device.type != "cpu":
        return NotImplemented
    if is_typed:
        return _typed_storage, (untyped, str(storage.dtype))
    if not untyped.nbytes():
        return torch.UntypedStorage, (0,)
    whole = torch.empty(0, dtype=torch.uint8, device="cpu").set_(untyped)
    return _storage, (hold.place(whole, untyped.nbytes()),)


def _reduce_plain(hold: Hold, tensor: torch.Tensor) -> Any:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or _is_special(tensor):
        return _reduce_special(tensor)
    needs_grad = tensor.requires_grad
    if needs_grad:
        if not tensor.is_leaf:
            raise RuntimeError(_NON_LEAF)
        tensor = tensor.detach()
    strides = None
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
        if is_dense(tensor):
            strides = tensor.stride()
        else:
            tensor = tensor.contiguous()
    shape, name = tuple(tensor.shape), str(tensor.dtype)
    nbytes = tensor.nbytes
    if not nbytes:
        return _empty, (name, shape, needs_grad)
    buffer = hold.place(tensor, nbytes)
    if strides is None and not needs_grad:
        return _tensor, (buffer, name, shape)
    return _tensor, (buffer, name, shape, strides, needs_grad)


def _reduce_special(tensor: Any) -> Any:
    if tensor.device.type != "cpu":
        return NotImplemented  # CUDA tensors travel by torch's own handles
    if tensor.layout is torch.strided and not _is_special(tensor):
        held = tensor.untyped_storage().nbytes()
        if held > 2 * tensor.nbytes and tensor.is_leaf and not tensor.requires_grad:
            tensor = tensor.clone()  # a small view must not drag its whole storage along
    return tensor.__reduce_ex__(5)


def _is_special(tensor: torch.Tensor) -> bool:
    return tensor.is_nested or tensor.is_quantized


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory without gaps or overlaps, in some order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _tensor(
    buffer: Any,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    needs_grad: bool = False,  # noqa: FBT001, FBT002 - called by pickle, by position
) -> torch.Tensor:
    flat = torch.frombuffer(buffer, dtype=_DTYPES[dtype])
    tensor = flat.view(shape) if strides is None else flat.as_strided(shape, strides)
    return tensor.requires_grad_() if needs_grad else tensor


def _empty(dtype: str, shape: tuple[int, ...], needs_grad: bool) -> torch.Tensor:  # noqa: FBT001
    return torch.empty(shape, dtype=_DTYPES[dtype], device="cpu", requires_grad=needs_grad)


def _storage(buffer: Any) -> torch.UntypedStorage:
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def _typed_storage(untyped: torch.UntypedStorage, dtype: str) -> Any:
    make: Any = torch.storage.TypedStorage
    return make(wrap_storage=untyped, dtype=_DTYPES[dtype], _internal=True)
