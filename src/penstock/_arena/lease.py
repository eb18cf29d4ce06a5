"""The consumer's right to a slab: from the delivery of a batch until its last tensor dies.

NOTE [ Lease life ]

    reserved ──worker fills──▶ filled ──deliver──▶ held ──last view dies──▶ released
                                          │
                                          └─ copied out: the lease ends at once

A delivered batch is views of the slab: torch tensors (`torch.frombuffer`) and numpy arrays, each of
which keeps alive a memoryview, which keeps alive one array made for this batch alone, the *anchor*.
When the last view is gone the anchor dies, and its finalizer reports the slab as released. So a batch
may be kept, stored, viewed, sliced or handed to another thread: the slab waits. Nothing is ever
recycled by position or by age.

The finalizer runs in whatever thread drops the last view, possibly inside the garbage collector: it
only appends to a deque, which is atomic, and takes no lock.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from penstock._arena.segment import Mapping


def hold(mapping: Mapping, released: Callable[[int], object], slab: int) -> memoryview:
    """Open a lease on a filled slab; `released(slab)` is called when its last view has died."""
    anchor = np.frombuffer(mapping.whole, np.uint8)
    # At interpreter exit nobody needs the slab any more.
    weakref.finalize(anchor, released, slab).atexit = False
    return memoryview(anchor)  # type: ignore[arg-type]  # numpy arrays export buffers on every Python
