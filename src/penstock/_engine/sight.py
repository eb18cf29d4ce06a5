"""What the kernel shows of a worker and of the processes that it started. Reads `/proc`, changes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from penstock._engine.stall import Call, Observation

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST = 256  # threads and processes to look at: more than any worker should have


def observe(pid: int, progress: tuple[int | str | None, ...], root: Path = _PROC) -> Observation | None:
    """Look at a worker; None when it is gone, or hidden from us."""
    try:
        state = _stat(root / str(pid))[0]
        status = (root / str(pid) / "status").read_text()
    except (OSError, IndexError):
        return None
    if state in ("Z", "X"):
        return None
    wakes = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary")), 0)
    ticks = nbytes = 0
    calls: list[Call] = []
    for each in _family(pid, root):
        with contextlib.suppress(OSError, IndexError):  # it has just ended
            # Its own time, user and system; and that of children that have ended.
            ticks += sum(int(word) for word in _stat(root / str(each))[11:15])
            nbytes += _nbytes(root / str(each))
            for thread in _numbers(root / str(each) / "task"):
                call = None if thread == pid else _call(root / str(each) / "task" / str(thread))
                if call:
                    calls.append(call)
    return Observation(
        pid=pid,
        progress=progress,
        cpu_s=ticks / _TICKS,
        io_bytes=nbytes,
        wakes=wakes,
        state=state,
        wchan=_wchan(root / str(pid)),
        call=_call(root / str(pid)),
        other_calls=tuple(calls),
    )


def _family(pid: int, root: Path) -> Iterator[int]:
    """The process and all under it."""
    waiting, seen = [pid], 0
    while waiting and seen < _MOST:
        each = waiting.pop()
        yield each
        seen += 1
        for thread in _numbers(root / str(each) / "task"):
            with contextlib.suppress(OSError):
                children = (root / str(each) / "task" / str(thread) / "children").read_text()
                waiting += map(int, children.split())


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in folder.iterdir())[:_MOST]
    except OSError:
        return []


def _stat(folder: Path) -> list[str]:
    """The fields of a process from its state on: the name before may hold anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _nbytes(folder: Path) -> int:
    """Through calls and through pages, in both directions. What a socket receives shows as wakes alone."""
    try:
        lines = (folder / "io").read_text().splitlines()
    except OSError:
        return 0  # hidden
    fields = dict(line.split(": ") for line in lines)
    return sum(int(fields.get(name, 0)) for name in ("rchar", "wchar", "read_bytes", "write_bytes"))


def _call(folder: Path) -> Call | None:
    try:
        words = (folder / "syscall").read_text().split()
    except OSError:
        return None
    # "running", or "-1 …" for a sleep outside of a system call; the last two words are registers.
    return tuple(int(word, 0) for word in words[:-2]) if words and words[0].isdigit() else ()


def _wchan(folder: Path) -> str:
    try:
        name = (folder / "wchan").read_text().strip()
    except OSError:
        return ""
    return "" if name == "0" else name
