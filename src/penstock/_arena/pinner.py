"""Pinned slabs: registered with the CUDA driver where they lie, and reused only when the device is done.

NOTE [ Pinned reuse ]

torch's allocator of pinned memory remembers which streams a block was used on. It does not know of our
slabs: `x.to("cuda", non_blocking=True)` on a slab returns while the copy is still in the queue of whatever
stream the user chose, the tensor dies, the lease ends, and a worker that now wrote to the slab would change
what the GPU is about to read. An event on the current stream does not help: a copy on a side stream is not
behind it (tried: corrupt every time). So between the end of a lease and reuse stands a wait for the whole
device (`_base.cuda`), asleep on a thread of its own, away from the training loop:

    last view dies ──▶ settling ──device has done all that was queued──▶ free

Several slabs that settle together share one wait. Meanwhile workers use other slabs.

Guarantees:

* A slab is unregistered before its addresses are given back (else the driver refuses them later).
* If the driver refuses to register a slab, batches are copied into torch's own pinned memory instead.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch

from penstock._arena.segment import Mapping
from penstock._base import cuda

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device


class Pinner:
    """Registers mappings and settles released slabs. One per arena; close it with the arena."""

    def __init__(self, settled: Callable[[int], object]) -> None:
        self._queue: SimpleQueue[int | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_settle_all, args=(self._queue, settled), name="penstock-pin", daemon=True
        )
        self._thread.start()

    def register(self, mapping: Mapping) -> None:
        """Pin the pages of a mapping for as long as it exists."""
        cuda_module: Any = torch.cuda
        runtime = cuda_module.cudart()
        status = runtime.cudaHostRegister(mapping.address, mapping.nbytes, _PORTABLE)
        if int(status) == 0:
            # Runs before the finalizer that unmaps: the later one of an object is called first.
            finalizer = weakref.finalize(mapping.whole, runtime.cudaHostUnregister, mapping.address)
            finalizer.atexit = False  # the driver goes down with the process

    def settle(self, slab: int) -> None:
        """A lease has ended: free the slab once the device is done with it. Any thread may call this."""
        self._queue.put(slab)

    def close(self) -> None:
        """End the thread after what it has in hand. May be called twice."""
        self._queue.put(None)


def _settle_all(queue: SimpleQueue[int | None], settled: Callable[[int], object]) -> None:
    while (first := queue.get()) is not None:
        slabs: list[int | None] = [first]
        while not queue.empty():
            slabs.append(queue.get())
        # A device in a bad state is reported by the training loop itself, at its next call.
        with contextlib.suppress(Exception):
            cuda.wait_devices()
        for slab in slabs:
            if slab is None:
                return
            settled(slab)
