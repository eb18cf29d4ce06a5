"""One copy of a dataset's large arrays for the consumer and all of its workers.

A dataset that is shipped to a clean process would exist twice: in the consumer, and in the segment that
workers read. So the consumer's own pages are moved onto the segment, in place: the bytes are copied into
it, and the segment is then mapped over the very addresses they came from.

    before   consumer: [ array, private memory ]
    after    consumer: [ array ]──private mapping──┐
             worker:   [ array ]──private mapping──┴──▶ segment, sealed: nobody can write to it

Guarantees:

* Every process keeps the meaning of its own copy: a write after the shipping is seen by the writer only
  (the kernel copies that page).
* Only memory that malloc took from the kernel for this array alone is moved (see SMALLEST), never what a
  GPU driver may have pinned, and nothing at all under an allocator whose habits we do not know.
* A second shipping of an unchanged array reuses the segment.

Runs on the consumer's thread. Linux.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock._arena.segment import Segment
from penstock._base import libc

# glibc takes larger blocks straight from the kernel, whatever its dynamic threshold (at most 32 MiB).
SMALLEST = 64 << 20  # bytes
STEP = 32 << 20  # bytes moved at a time: what exists twice for a moment


class Berth(NamedTuple):
    """Where a buffer lies: an offset in a segment."""

    segment: Segment
    offset: int
    nbytes: int


_moved: dict[int, Berth] = {}  # by address


def share(view: memoryview, owner: Any) -> Berth | None:
    """Move a large buffer of this process onto a segment, or find it there; None if it must be copied."""
    if view.readonly or view.nbytes < max(1, SMALLEST):
        return None
    address = ctypes.addressof(ctypes.c_char.from_buffer(view))
    known = _moved.get(address)
    if known is not None:
        if known.nbytes == view.nbytes and _is_unchanged(known, address):
            return known
        _forget(address, known)
    owner = _root(owner)
    if not _can_move(owner, address, view.nbytes):
        return None
    berth = _move(address, view.nbytes)
    _moved[address] = berth
    weakref.finalize(owner, _forget, address, berth).atexit = False
    return berth


def _move(address: int, nbytes: int) -> Berth:
    # Same place within a page on both sides, so that whole pages can be mapped over.
    offset = address % libc.PAGE
    segment = Segment.create(offset + nbytes)
    first = -(-address // libc.PAGE) * libc.PAGE
    last = (address + nbytes) // libc.PAGE * libc.PAGE
    _copy(segment, address, offset, first - address)
    for start in range(first, last, STEP):
        size = min(STEP, last - start)
        place = start - address + offset
        _copy(segment, start, place, size)
        flags = libc.MAP_PRIVATE | libc.MAP_FIXED
        libc.mmap(segment.fd, size, flags, address=start, offset=place)
    _copy(segment, last, last - address + offset, address + nbytes - last)
    import fcntl

    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, seals)
    return Berth(segment, offset, nbytes)


def _copy(segment: Segment, address: int, offset: int, nbytes: int) -> None:
    view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B") if nbytes else b""
    done = 0
    while done < nbytes:
        done += os.pwrite(segment.fd, view[done:], offset + done)


def _is_unchanged(berth: Berth, address: int) -> bool:
    mapping = berth.segment.map(private=True)
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return bool(compare(mapping.address + berth.offset, address, berth.nbytes) == 0)


def _forget(address: int, berth: Berth) -> None:
    if _moved.get(address) is berth:
        del _moved[address]
    berth.segment.close()


def _root(owner: Any) -> Any:
    """The array that owns the memory of a view."""
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner


def _is_private(address: int, nbytes: int) -> bool:
    """Whether all of this memory is anonymous and this process's own: no file, no shared segment."""
    covered = address
    with Path("/proc/self/maps").open() as maps:
        for line in maps:
            span, access, _, _, inode, *name = line.split(None, 5)
            start, end = (int(word, 16) for word in span.split("-"))
            if start <= covered < end and covered < address + nbytes:
                is_ours = inode == "0" or name[0].startswith("/memfd:penstock")  # moved before
                if access[3] != "p" or not is_ours:
                    return False
                covered = end
    return covered >= address + nbytes


def _can_move(owner: Any, address: int, nbytes: int) -> bool:
    if sys.platform != "linux" or (isinstance(owner, np.ndarray) and not owner.flags.owndata):
        return False
    try:
        weakref.ref(owner)
    except TypeError:
        return False  # its end could not be seen, and the segment would stay for ever
    if not _is_private(address, nbytes):
        return False
    libc_names = ctypes.CDLL(None)
    # Other allocators reuse freed ranges and trust the kernel to have zeroed them.
    if any(hasattr(libc_names, name) for name in ("mallctl", "tc_malloc", "mi_malloc")):
        return False
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    return not torch.as_tensor(owner).is_pinned()
