"""The few calls of the C library that Python does not offer. Linux; the names are the C names.

Everything that passes raw addresses to the system is in this file, and only here.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

PROT_READ_WRITE = 0x3
MAP_SHARED, MAP_PRIVATE, MAP_FIXED = 0x01, 0x02, 0x10
MAP_POPULATE = 0x8000 if sys.platform == "linux" else 0  # fault every page in now

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_MAP_FAILED = ctypes.c_void_p(-1).value

_loaded: Any = None


def _libc() -> Any:
    global _loaded  # noqa: PLW0603 - loaded on first use, so that importing has no effect
    if _loaded is None:
        _loaded = ctypes.CDLL(None, use_errno=True)
        _loaded.mmap.restype = ctypes.c_void_p
        _loaded.mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
            ctypes.c_long,
        ]  # fmt: skip
        _loaded.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return _loaded


def mmap(fd: int, nbytes: int, flags: int, *, address: int = 0, offset: int = 0) -> int:
    """Map `nbytes` of a descriptor for reading and writing; return the address."""
    got = _libc().mmap(address or None, nbytes, PROT_READ_WRITE, flags, fd, offset)
    if got == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(got)


def munmap(address: int, nbytes: int) -> None:
    """Give an address range back."""
    _libc().munmap(address, nbytes)


def memmove(to: int, source: int, nbytes: int) -> None:
    """Copy bytes between two addresses."""
    ctypes.memmove(to, source, nbytes)


def die_with_parent() -> None:
    """Have the kernel send this process SIGKILL when the thread that forked it ends."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show (15 bytes)."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_NAME, name.encode()[:15])


def keep_freed_memory(nbytes: int) -> None:
    """Let malloc reuse freed blocks instead of giving them back to the kernel and faulting anew.

    A worker frees and allocates the same large blocks for every sample; by default glibc returns each
    to the kernel, and the page faults of the next one cost as much as the whole transport.
    """
    if sys.platform != "linux" or not hasattr(_libc(), "mallopt"):
        return
    _libc().mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the largest value that glibc accepts
    _libc().mallopt(_M_TRIM_THRESHOLD, min(nbytes, (1 << 31) - 1))
    _libc().mallopt(_M_TOP_PAD, 16 << 20)
