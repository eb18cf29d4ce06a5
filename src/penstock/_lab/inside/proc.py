"""What the kernel says of this process, and how much of its time we may take for looking."""

from __future__ import annotations

import errno
import os
import resource
import time
from typing import Any

SHARE = 0.1  # of the program's own time that we may spend on looking
ALLOWANCE_S = 0.3  # and so much we may spend in any case, in one process
_USS_EVERY_S = 0.1  # reading it walks the page tables: a millisecond or more
_USS_SHARE = 20  # times as long as it took is waited, at least
_IDLE_SHARE = 0.3
_MANY, _MORE = 0.4, 1.2  # of the limit of descriptors; of how many there were early on
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Descriptors:
    """Whether this process runs towards its limit of descriptors: it has many, and more and more."""

    def __init__(self) -> None:
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._early: int | None = None

    def remember(self) -> None:
        """Once, when the program is under way."""
        if self._early is None:
            self._early = self._count()

    @property
    def run_out(self) -> bool:
        """Whether there will be none left before long."""
        now = self._count()
        return now > _MANY * self._limit > 0 and now > _MORE * (self._early or now)

    def _count(self) -> int:
        try:
            return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names
        except OSError as error:  # to look takes one too
            return self._limit if error.errno == errno.EMFILE else 0


class Looker:
    """Counts our time against the program's, in one process."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.told = 0
        self._worked = 0.0
        self._uss_at = self._uss_took = 0.0

    def work(self, seconds: float, cpu_s: float) -> None:
        """The program worked so long. Of the time in which it did not compute, most was somebody else's."""
        self._worked += cpu_s + _IDLE_SHARE * max(0.0, seconds - cpu_s)

    @property
    def has_time(self) -> bool:
        """Whether we may look closely."""
        return self.spent <= ALLOWANCE_S + SHARE * self._worked

    def vitals(self) -> dict[str, Any]:
        """Memory and threads of this process."""
        return {"rss": rss(), "uss": self._uss(), "threads": threads()}

    def _uss(self) -> int:
        """What is ours alone; 0 when it was read too short a time ago."""
        now = time.monotonic()
        if now - self._uss_at < max(_USS_EVERY_S, _USS_SHARE * self._uss_took):
            return 0
        before = time.thread_time()
        found = uss()
        self._uss_at, self._uss_took = now, time.thread_time() - before
        return found


def read_bytes() -> int:
    """Bytes that this process has read, from storage or cache."""
    return _field("/proc/self/io", b"rchar:")


def queued_s() -> float:
    """Seconds that this process's main thread was ready to run but had no CPU."""
    words = _read("/proc/self/schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def rss() -> int:
    """Resident bytes."""
    data = _read("/proc/self/statm").split()
    return int(data[1]) * _PAGE if len(data) > 1 else 0


def uss() -> int:
    """Bytes that this process has for itself."""
    data = _read("/proc/self/smaps_rollup")
    return 1024 * (_of(data, b"Private_Clean:") + _of(data, b"Private_Dirty:"))


def maps() -> int:
    """Memory maps of this process."""
    try:
        fd = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:  # in small parts: there may be no map left for a large one
        return sum(part.count(b"\n") for part in iter(lambda: os.read(fd, 1 << 14), b""))
    finally:
        os.close(fd)


def threads() -> int:
    """Threads of this process, those of libraries too."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - one system call, no objects
    except OSError:
        return 0


def _field(path: str, name: bytes) -> int:
    return _of(_read(path), name)


def _of(data: bytes, name: bytes) -> int:
    start = data.find(name)
    return int(data[start + len(name) :].split(None, 1)[0]) if start >= 0 else 0


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 8192)
    finally:
        os.close(fd)
