"""Which sample a process has in hand, where another process can read it at any time.

A process that hangs or dies cannot report any more. So each one keeps a small file beside the log, mapped
into its memory, and writes there what it begins, at the price of a copy of a few bytes.

    <log>.taking/<pid>      one page: length, then JSON [loader, iterator, worker, index]
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from pathlib import Path
from typing import Any

_SIZE = 1024  # bytes; an index is short


class Page:
    """The page of this process."""

    def __init__(self, log: str) -> None:
        self._folder = folder(log)
        self._map: mmap.mmap | None = None
        self._pid = 0

    def put(self, text: str) -> None:
        """Say what is in hand; an empty text says nothing is."""
        if self._pid != os.getpid():
            self._open()
        if self._map is None:
            return
        data = text.encode("utf-8", "backslashreplace")[: _SIZE - 2]
        self._map[: len(data) + 2] = len(data).to_bytes(2, "little") + data

    def _open(self) -> None:
        self._pid, self._map = os.getpid(), None
        with contextlib.suppress(OSError, ValueError):
            os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103
            name = f"{self._folder}/{self._pid}"
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, _SIZE)
                self._map = mmap.mmap(fd, _SIZE)
            finally:
                os.close(fd)


def folder(log: str) -> str:
    """Where the pages of a trial are."""
    return f"{log}.taking"


def read(log: str) -> dict[int, tuple[str, int, int, Any]]:
    """For each process that has a sample in hand: loader, number of the pass, worker, index."""
    found: dict[int, tuple[str, int, int, Any]] = {}
    place = Path(folder(log))
    for path in place.iterdir() if place.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, TypeError):
            data = path.read_bytes()
            length = int.from_bytes(data[:2], "little")
            if length:
                loader, number, worker, index = json.loads(data[2 : 2 + length])
                found[int(path.name)] = (loader, number, worker, index)
    return found
