"""Descriptors: how many this process may have, and which numbers ours must not get.

A program whose standard streams are closed leaves the numbers 0, 1 and 2 free, and what is opened next gets
them. C libraries write to 1 and 2 whatever lies there: it must not be a batch, or a channel.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import sys

_STREAMS = 3  # numbers below are those of the standard streams


def limit() -> int:
    """How many descriptors this process may have open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most


def lift(fd: int) -> int:
    """The same file under a number that is no standard stream's; the old one is closed if it was."""
    if fd >= _STREAMS:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STREAMS)
    finally:
        os.close(fd)


def fill_streams() -> None:
    """Open the null device for each standard stream that is closed, so that nothing else takes its number."""
    with contextlib.suppress(OSError):  # a place without devices
        while (fd := os.open(os.devnull, os.O_RDWR)) < _STREAMS:
            os.set_inheritable(fd, True)  # noqa: FBT003 - the only form; for programs that the dataset starts
        os.close(fd)
