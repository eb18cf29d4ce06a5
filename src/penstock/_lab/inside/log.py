"""The event log of a trial, as one process writes it.

One write(2) for each call, on a descriptor with O_APPEND: lines of several processes do not mix. Every call
first looks whether the descriptor is still ours, since programs close descriptors that they did not open; the
same look tells how large the log is, and what is not essential is left out when it is full.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

MOST_BYTES = 20 << 20  # of the whole log; then only what is essential
ESSENTIAL = frozenset({"failed", "ended", "enough", "program", "died", "iter", "started", "loader", "mend"})
MOST_BYTES_AT_ALL = 24 << 20

_FIRST_FD = 50  # a number that a program would not use for its own files: it may expect low ones


class Log:
    """Where this process reports."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._identity: tuple[int, int] | None = None
        self._held: list[str] = []

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event, after those that were held back."""
        self.hold(kind, **fields)
        self.flush(is_essential=kind in ESSENTIAL)

    def hold(self, kind: str, **fields: Any) -> None:
        """Keep one event for the next write."""
        event = {"kind": kind, "pid": os.getpid(), "at": round(time.monotonic(), 6), **fields}
        self._held.append(json.dumps(event, default=plain, separators=(",", ":")))

    def flush(self, *, is_essential: bool = False) -> None:
        """Write what was held back."""
        lines, self._held = self._held, []
        if not lines:
            return
        with contextlib.suppress(OSError):
            size = self._open()
            if size < (MOST_BYTES_AT_ALL if is_essential else MOST_BYTES):
                os.write(self._fd, ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))

    def forget(self) -> None:
        """In a forked child: the parent's events are the parent's."""
        self._held = []

    def _open(self) -> int:
        """Make sure of the descriptor; the size of the log."""
        if self._identity is not None:
            with contextlib.suppress(OSError):
                now = os.fstat(self._fd)
                if (now.st_dev, now.st_ino) == self._identity:
                    return now.st_size
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._fd = _move_up(fd)
        now = os.fstat(self._fd)
        self._identity = now.st_dev, now.st_ino
        return now.st_size


def _move_up(fd: int) -> int:
    import fcntl

    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    except OSError:
        return fd  # a low limit of descriptors
    os.close(fd)
    return high


def plain(value: Any) -> Any:
    """Something that JSON can say, of whatever a program uses as an index or an option."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list, set, frozenset)):
        return [plain(each) for each in list(value)[:64]]
    number = getattr(value, "item", None)
    if number is not None and getattr(value, "ndim", 1) == 0:
        return plain(number())
    return repr(value)[:200]
