"""The worker's side of a slab: room for one batch, taken piece by piece, growing as needed.

A slab is a segment of its own, so that it can grow without moving a neighbour, be given up alone and
be pinned alone. The consumer owns it; the worker that holds its ticket is the only one that writes.

    begin(slab) ── allocate ── allocate ── … ── finish() ─▶ is anybody here still holding a piece?

Guarantees:

* Pieces are aligned to 64 bytes, as torch's own allocator does it.
* Growing never moves or frees pieces that were handed out: the old mapping shows the same memory.
* `finish` tells when user code kept a tensor that lies in the slab (a collate function that
  remembers its last batch): such a slab must not be written again. The consumer then gives it up.

Runs in the worker's only thread.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from penstock._arena.segment import Mapping, Segment

ALIGNMENT = 64
# Ragged batches would otherwise grow the slab a little at every record length.
HEADROOM = 1.25
SMALLEST = 1 << 16  # bytes; below this the bookkeeping costs more than the memory
TAIL = 1 << 12  # bytes for what follows the tensors, which must not make the slab grow again


class SlabWriter:
    """Writes batches into one slab after another."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Segment, Mapping | None]] = {}
        self._slab = -1
        self._used = 0
        self._limit = 0  # bytes of the current slab that are mapped
        # Every mapping of the current slab as (address, bytes, array), the newest first.
        self._views: list[tuple[int, int, Any]] = []

    @property
    def nbytes(self) -> int:
        """Bytes reserved for the current slab."""
        return self._limit

    @property
    def is_open(self) -> bool:
        """Whether a batch is being written."""
        return self._slab >= 0

    def learn(self, slab: int, fd: int, nbytes: int) -> None:
        """Take over the descriptor of a slab this worker has not seen before."""
        self.forget(slab)
        self._known[slab] = (Segment(fd, nbytes), None)

    def forget(self, slab: int) -> None:
        """Drop a slab that the consumer has given up. Tensors that user code kept stay valid."""
        segment, _ = self._known.pop(slab, (None, None))
        if segment is not None:
            segment.close()

    def begin(self, slab: int, nbytes: int, expected: int) -> None:
        """Start a batch in `slab`, now `nbytes` long; `expected` is what earlier batches took."""
        segment, mapping = self._known[slab]
        self._slab, self._used, self._limit, self._views = slab, 0, 0, []
        segment.nbytes = max(segment.nbytes, nbytes)  # another worker may have grown it
        segment.reserve(expected)
        if segment.nbytes:
            self._show(segment, mapping)

    def allocate(self, nbytes: int) -> int:
        """Take `nbytes` of the slab; return their offset."""
        offset = -(-self._used // ALIGNMENT) * ALIGNMENT
        self._used = offset + nbytes
        if self._used > self._limit:
            self._grow(self._used)
        return offset

    def buffer(self) -> Any:
        """The whole slab as an array of bytes; views of it keep the slab from being reused."""
        if not self._views:
            self._grow(0)
        return self._views[0][2]

    def address(self) -> int:
        """Where the slab starts in this process."""
        return self._views[0][0]

    def offset_of(self, address: int) -> int | None:
        """The offset of an address that lies in the current slab, or None."""
        for start, nbytes, _ in self._views:
            if start <= address < start + nbytes:
                return address - start
        return None

    def finish(self) -> bool:
        """End the batch; True when user code still holds a piece of it."""
        watches = [weakref.ref(array) for _, _, array in self._views]
        self._slab, self._views = -1, []
        return any(watch() is not None for watch in watches)

    def close(self) -> None:
        """Give every slab back."""
        for slab in list(self._known):
            self.forget(slab)

    def _grow(self, needed: int) -> None:
        segment, _ = self._known[self._slab]
        wanted = max(needed + TAIL, int(segment.nbytes * HEADROOM))
        segment.reserve(-(-wanted // SMALLEST) * SMALLEST)
        self._show(segment, None)

    def _show(self, segment: Segment, mapping: Mapping | None) -> None:
        if mapping is None or mapping.nbytes < segment.nbytes:
            mapping = segment.map()
            self._known[self._slab] = (segment, mapping)
        # A fresh array for each batch: its death is how `finish` knows that no piece is held.
        array = np.frombuffer(mapping.whole, np.uint8)
        self._views.insert(0, (mapping.address, mapping.nbytes, array))
        self._limit = mapping.nbytes
