"""torch's default collate, made to write into the slab and to hurry.

torch would put every stacked tensor into a new shared file (and so into `/dev/shm`). In a worker its table of
collate functions is changed instead, so that user code which calls `default_collate` gains as well:

    Tensor       stacked straight into the slab; small ones are stacked as usual and copied in later
    int, float   numpy takes a list of numbers five times as fast as torch
    tuple        transposed once, where torch walks through the batch three times

Guarantees: the same values, types and errors as torch's own functions. Functions that the user has put into
the table stay.

Runs in the worker's thread.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils import collate as stock

from penstock._arena.slab import SlabWriter
from penstock._engine.rows import Rows

# Below this the bookkeeping of a tensor that lies in the slab costs more than a copy.
SMALL = 32 << 10  # bytes


def collate_into(writer: SlabWriter, rows: Rows) -> None:
    """Have torch's default collate write into the writer's slab from now on."""
    collate = _Collate(writer, rows)
    table: Any = stock.default_collate_fn_map
    if table.get(torch.Tensor) is stock.collate_tensor_fn:
        table[torch.Tensor] = collate.tensors
    if table.get(int) is stock.collate_int_fn:
        table[int] = collate.integers
    if table.get(float) is stock.collate_float_fn:
        table[float] = collate.floats
    table.setdefault(tuple, collate.tuples)


class _Collate:
    """Functions for torch's table, each for batches whose first element is of its type."""

    def __init__(self, writer: SlabWriter, rows: Rows) -> None:
        self._writer = writer
        self._rows = rows

    def tensors(self, batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        first, writer = batch[0], self._writer
        if not writer.is_open or type(first) is not torch.Tensor or not first.numel() or not first.is_cpu:
            return torch.stack(list(batch), 0)  # nothing to gain, or no slab to write to
        if first.layout is not torch.strided or first.is_nested or first.is_quantized:
            refused: torch.Tensor = stock.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
            return refused  # it raises, and says why
        if len(batch) * first.nbytes < SMALL:
            stacked = torch.stack(batch, 0)
            if stacked.dtype is first.dtype:  # else torch, which wants the first's type, refuses
                return stacked
        joined = self._rows.joined(batch)
        if joined is not None:
            return joined
        offset = writer.allocate(len(batch) * first.nbytes)
        count = len(batch) * first.numel()
        out = torch.frombuffer(writer.buffer(), dtype=first.dtype, count=count, offset=offset)
        return torch.stack(batch, 0, out=out.view(len(batch), *first.shape))

    def integers(self, batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:  # noqa: ARG002 - torch's
        try:
            column = self._numbers(batch, int, np.int64)
        except OverflowError:
            column = None  # torch has its own words for that
        joined: torch.Tensor = stock.collate_int_fn(batch) if column is None else column
        return joined

    def floats(self, batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:  # noqa: ARG002 - torch's
        column = self._numbers(batch, float, np.float64)
        joined: torch.Tensor = stock.collate_float_fn(batch) if column is None else column
        return joined

    def tuples(self, batch: Any, *, collate_fn_map: Any = None) -> Any:
        columns: list[Any] = []
        if type(batch[0]) is tuple:
            with contextlib.suppress(ValueError, TypeError):  # not alike: torch says so
                columns = list(zip(*batch, strict=True))
        if not columns:
            others = {kind: function for kind, function in collate_fn_map.items() if kind is not tuple}
            return stock.collate(batch, collate_fn_map=others)
        return [stock.collate(column, collate_fn_map=collate_fn_map) for column in columns]

    def _numbers(self, batch: Any, kind: type, dtype: Any) -> torch.Tensor | None:
        if not self._writer.is_open or set(map(type, batch)) != {kind}:
            return None
        offset = self._writer.allocate(8 * len(batch))
        column: Any = np.ndarray(len(batch), dtype, self._writer.buffer(), offset)
        column[:] = batch
        return torch.from_numpy(column)
