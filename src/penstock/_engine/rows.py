"""Large tensors of a sample move into the slab as soon as the sample exists.

Collating at the end reads every sample once more, when the first ones have long left the CPU's cache, and a
whole batch of samples must be held until then. So with torch's default collate each large tensor or array is
copied to its row of the slab at once and dropped; the next sample finds the same block of heap, still warm.

    sample k:  (image, label)  ──▶  (row k of the slab, label)
    collate:   [row 0, row 1, …]  ──▶  they are the rows of one tensor: nothing is left to copy

Guarantees: a moved sample is equal to the original, field by field, in type, dtype and shape; whatever does
not fit (another shape, a subclass, a gradient) is left as it is, and the collate function says what it
always says.

Runs in the worker's thread, between two samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from penstock._arena.slab import SlabWriter

# Below this, a copy of its own per sample costs more than stacking them all at the end.
LARGE = 32 << 10  # bytes


class Rows:
    """The rows of the batch that is being made."""

    def __init__(self, writer: SlabWriter) -> None:
        self._writer = writer
        self._columns: dict[Any, torch.Tensor] = {}
        self._places: list[Any] = []
        self._size = 0
        self._next = 0

    def begin(self, size: int) -> None:
        """A batch of `size` samples follows."""
        self._columns, self._places, self._size, self._next = {}, [], size, 0

    @property
    def has_large(self) -> bool:
        """Whether the first sample of the batch had large parts; if not, no other is moved."""
        return bool(self._places)

    def move(self, sample: Any) -> Any:
        """The sample with its large parts in the slab."""
        number, self._next = self._next, self._next + 1
        if number == 0:
            self._places = _large_places(sample)
        if not self._places:
            return sample
        if self._places[0] is _WHOLE:
            return self._row(_WHOLE, number, sample)
        return self._move_parts(sample, number)

    def joined(self, batch: Any) -> torch.Tensor | None:
        """The tensor whose rows these are, in order; None when they are not."""
        for column in self._columns.values():
            start, step = column.data_ptr(), column[0].nbytes
            if batch[0].data_ptr() == start and batch[0].shape == column.shape[1:]:
                addresses = list(range(start, start + column.nbytes, step))
                is_whole = [
                    row.data_ptr() for row in batch if type(row) is torch.Tensor and row.nbytes == step
                ] == addresses
                return column if is_whole else None
        return None

    def end(self) -> None:
        """The batch is made, or given up: hold nothing of it."""
        self._columns, self._places = {}, []

    def _move_parts(self, sample: Any, number: int) -> Any:
        if type(sample) not in (tuple, list, dict):
            return sample
        parts = dict(sample) if type(sample) is dict else list(sample)
        for place in self._places:
            try:
                parts[place] = self._row(place, number, parts[place])
            except (KeyError, IndexError):
                return sample  # the collate function will say so
        return tuple(parts) if type(sample) is tuple else parts

    def _row(self, place: Any, number: int, value: Any) -> Any:
        is_array = type(value) is np.ndarray
        if not (is_array or type(value) is torch.Tensor) or not _is_plain(value):
            return value
        tensor = torch.from_numpy(value) if is_array else value
        column = self._columns.get(place)
        if column is None:
            if number:
                return value
            column = self._columns[place] = self._allocate(tensor)
        if number >= self._size or column.dtype != tensor.dtype or column.shape[1:] != tensor.shape:
            return value
        row = column[number]
        row.copy_(tensor)
        return row.numpy() if is_array else row

    def _allocate(self, tensor: torch.Tensor) -> torch.Tensor:
        count = self._size * tensor.numel()
        offset = self._writer.allocate(self._size * tensor.nbytes)
        flat = torch.frombuffer(self._writer.buffer(), dtype=tensor.dtype, count=count, offset=offset)
        return flat.view(self._size, *tensor.shape)


_WHOLE = object()  # the sample itself is the tensor


def _large_places(sample: Any) -> list[Any]:
    """Where in the sample the large tensors and arrays are, one level deep."""
    if type(sample) is dict:
        return [key for key, value in sample.items() if _is_large(value)]
    if type(sample) in (tuple, list):
        return [place for place, value in enumerate(sample) if _is_large(value)]
    return [_WHOLE] if _is_large(sample) else []


def _is_large(value: Any) -> bool:
    return type(value) in (torch.Tensor, np.ndarray) and value.nbytes >= LARGE and _is_plain(value)


def _is_plain(value: Any) -> bool:
    # Only what the sample alone has: a view of the dataset's own memory may still change until the end of
    # the batch, and torch would show that.
    if type(value) is np.ndarray:
        is_own = value.flags.owndata and value.flags.writeable
        return bool(is_own and value.dtype.kind in "fiub" and value.dtype.isnative)
    if value.requires_grad or value.is_nested or value.is_quantized or value.is_conj() or value.is_neg():
        return False
    if not value.is_cpu or value.layout is not torch.strided or value._is_view():  # noqa: SLF001
        return False
    return bool(value.untyped_storage().resizable())
