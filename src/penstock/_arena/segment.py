"""One shared-memory object of the system, and its mappings.

Guarantees:

* A segment has no name in any file system: nothing is left behind, whoever is killed.
* Its size is not bounded by `/dev/shm`: it is a memfd, or, where there is none, a POSIX object that
  is unlinked before anything is written to it.
* Room is reserved before it is used (`posix_fallocate`), so that lack of it is an error with numbers
  and never a SIGBUS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import weakref
from typing import Any

from penstock._base import descriptors, host, libc
from penstock.errors import ArenaError

# What batches leave to the processes that handle them: with the last page taken, any of them is killed.
SPARE_BYTES = 16 << 20


def memory_left() -> int:
    """Bytes that batches may still take."""
    return max(0, host.memory_available() - SPARE_BYTES)


class Segment:
    """A descriptor of shared memory, with `nbytes` of it reserved. Close it when done."""

    __slots__ = ("fd", "nbytes")

    def __init__(self, fd: int, nbytes: int = 0) -> None:
        self.fd = fd
        self.nbytes = nbytes

    @classmethod
    def create(cls, nbytes: int = 0) -> Segment:
        """Make a new segment and reserve `nbytes` for it."""
        try:
            segment = cls(descriptors.lift(_open()))
        except OSError as failure:
            raise _refused("create shared memory for batches", failure) from failure
        try:
            segment.reserve(nbytes)
        except BaseException:
            segment.close()
            raise
        return segment

    def reserve(self, nbytes: int) -> None:
        """Make the segment at least `nbytes` long; pages are taken now, not on first touch."""
        if nbytes <= self.nbytes:
            return
        needed = nbytes - self.nbytes
        # tmpfs takes pages until the machine is out of memory, and only then refuses; by that time
        # the out-of-memory killer has been at work. So ask before.
        available = memory_left()
        if needed > available:
            raise _no_room(needed, available)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.fd, self.nbytes, needed)
            else:
                os.ftruncate(self.fd, nbytes)
        except OSError as failure:
            if failure.errno in (errno.ENOSPC, errno.ENOMEM):
                raise _no_room(needed, available) from failure
            raise _refused(f"reserve {needed} bytes of shared memory", failure) from failure
        self.nbytes = nbytes

    def map(self, *, private: bool = False) -> Mapping:
        """Map the whole segment; `private` keeps later writes to this process."""
        flags = (libc.MAP_PRIVATE if private else libc.MAP_SHARED) | libc.MAP_POPULATE
        if private:
            flags &= ~libc.MAP_POPULATE  # populating a private mapping would copy every page
        try:
            return Mapping(libc.mmap(self.fd, self.nbytes, flags), self.nbytes)
        except OSError as failure:
            raise _refused(f"map {self.nbytes} bytes of shared memory", failure) from failure

    def close(self) -> None:
        """Close the descriptor; mappings stay valid. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Mapping:
    """A segment in this process's address space, readable as `whole`.

    The addresses are given back when `whole` and every view of it are gone, never before: whoever
    holds a tensor on it holds the mapping.
    """

    __slots__ = ("address", "nbytes", "whole")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.whole: Any = (ctypes.c_char * nbytes).from_address(address)
        # At interpreter exit tensors may outlive this finalizer: the kernel clears up by itself.
        weakref.finalize(self.whole, libc.munmap, address, nbytes).atexit = False


def _open() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as failure:
            if failure.errno not in (errno.ENOSYS, errno.EPERM):  # a sandbox that forbids the call
                raise
    return _open_posix()


def _open_posix() -> int:
    import _posixshmem  # type: ignore[import-not-found]  # CPython's own wrapper of shm_open, on every POSIX system

    name = f"/penstock-{secrets.token_hex(6)}"
    fd: int = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    _posixshmem.shm_unlink(name)  # from here on it is anonymous
    return fd


def _no_room(needed: int, available: int) -> ArenaError:
    return ArenaError(
        "PS701",
        f"a batch needs {needed / 2**20:.1f} MiB more shared memory than the loader holds, "
        f"but only {available / 2**20:.1f} MiB of memory are left",
        why="that is what the machine has available, or what the memory cgroup still allows, "
        f"less {SPARE_BYTES >> 20} MiB for the processes themselves",
        fix="lower `batch_size`, `num_workers` or `prefetch_factor`, or raise the memory limit",
    )


def _refused(attempt: str, failure: OSError) -> ArenaError:
    fixes = {
        errno.EMFILE: "raise the limit of open files (`ulimit -n`), or keep fewer open",
        errno.ENFILE: "the whole system is out of file descriptors: raise `fs.file-max`",
        errno.ENOMEM: "raise `vm.max_map_count` or the address-space limit (`ulimit -v`)",
    }
    return ArenaError(
        "PS702",
        f"the system refused to {attempt}",
        why=str(failure),
        fix=fixes.get(failure.errno or 0, "see `penstock explain PS702` for the limits that matter"),
    )
