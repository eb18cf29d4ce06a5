"""The processes of a patient, as /proc shows them. Reads, and sends SIGKILL; starts nothing.

Everything that the patient starts stays below the trial's warden (see `warden`), however often it forks
and whatever session it moves to.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

_PROC = "/proc"
_STATE, _PARENT, _USER, _SYSTEM, _STARTED, _EXIT = (
    0,
    1,
    11,
    12,
    19,
    49,
)  # places after the name in /proc/PID/stat


class Process(NamedTuple):
    """A process at one moment."""

    pid: int
    parent: int
    state: str
    started: int  # in clock ticks since boot: with the pid it names a process for good
    name: str
    exit_code: int  # as wait(2) gives it; means something only for a zombie
    ticks: int = 0  # of CPU time, in user code and in the kernel

    @property
    def is_alive(self) -> bool:
        """Whether it is more than an entry that waits to be read."""
        return self.state not in "ZX"


def read(pid: int) -> Process | None:
    """A process, or None when it is gone."""
    text = slurp(f"{_PROC}/{pid}/stat")
    head, found, rest = text.rpartition(")")
    words = rest.split()
    if not found or len(words) <= _STARTED:
        return None
    exit_code = int(words[_EXIT]) if len(words) > _EXIT else 0
    name = head.partition("(")[2]
    ticks = int(words[_USER]) + int(words[_SYSTEM])
    return Process(pid, int(words[_PARENT]), words[_STATE], int(words[_STARTED]), name, exit_code, ticks)


def everybody() -> list[Process]:
    """Every process of the machine."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - several times a second: no objects
    except OSError:
        return []
    found = (read(int(name)) for name in names if name.isdigit())
    return [process for process in found if process is not None]


def below(root: int) -> list[Process]:
    """Every descendant of a process, parents before children; complete, for it looks at all processes."""
    children: dict[int, list[Process]] = {}
    for process in everybody():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        for process in children.get(waiting.pop(), ()):
            found.append(process)
            waiting.append(process.pid)
    return found


def quick_below(root: int, *, most: int = 2048) -> list[Process]:
    """The same from the kernel's lists of children: quick, but it may miss one that is just being born.

    Some kernels have no such lists; then it is `below`.
    """
    if not os.path.exists(f"{_PROC}/self/task/{os.getpid()}/children"):  # noqa: PTH110 - often
        return below(root)[:most]
    found: list[Process] = []
    waiting = [root]
    while waiting and len(found) < most:
        for pid in children_of(waiting.pop(0)):
            process = read(pid)
            if process is not None:
                found.append(process)
                waiting.append(pid)
    return found


def children_of(pid: int) -> list[int]:
    """The children of all threads of a process."""
    found: list[int] = []
    for tid in threads_of(pid):
        found += map(int, slurp(f"{_PROC}/{pid}/task/{tid}/children").split())
    return found


def threads_of(pid: int) -> list[int]:
    """Its threads, the main one first."""
    try:
        return sorted(int(name) for name in os.listdir(f"{_PROC}/{pid}/task"))  # noqa: PTH208
    except OSError:
        return []


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL; those that have gone meanwhile do not matter."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)


def slurp(path: str, most: int = 1 << 20) -> str:
    """The text of a small file of /proc; empty when it is gone or hidden."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = []
        while most > 0 and (part := os.read(fd, min(most, 1 << 16))):
            parts.append(part)
            most -= len(part)
        return b"".join(parts).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
