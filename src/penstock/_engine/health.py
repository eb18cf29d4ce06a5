"""Is a forked worker waiting for a lock that nobody can ever release?

A lock that another thread of the consumer held at the moment of the fork is locked for ever in the child:
its owner does not exist there. The same holds for the barriers of a thread pool whose threads did not come
along (OpenMP, OpenCV). From outside this can be *proved* for a process with one thread: it sleeps in a
private futex without a deadline, and only a thread of the same process could wake it.

Guarantees: `is_stuck` says yes only for that state, unchanged between two looks. Slow samples, sleeps, reads,
locks shared between processes and workers that have threads of their own are never called stuck.

Reads `/proc`; decides nothing by time.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NamedTuple

_FUTEX = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAIT_BITSET = 0, 9
_PRIVATE, _COMMAND = 128, 127  # the flag, and the mask of the operation in the second argument


class Look(NamedTuple):
    """A worker at one moment, as the kernel shows it."""

    threads: int
    switches: int  # how often it went to sleep so far
    call: tuple[int, ...]  # the system call it sleeps in and its arguments; empty when it runs


def look(pid: int, root: Path = Path("/proc")) -> Look | None:
    """Look at a process; None when it is gone or hidden from us."""
    try:
        status = (root / str(pid) / "status").read_text()
        call = (root / str(pid) / "syscall").read_text().split()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    # "running", or "-1 …" for a sleep outside of a system call; the last two words are registers.
    words = tuple(int(word, 0) for word in call[:-2]) if call[0].isdigit() else ()
    return Look(int(fields["Threads"]), int(fields["voluntary_ctxt_switches"]), words)


def is_stuck(before: Look | None, now: Look | None, machine: str = platform.machine()) -> bool:
    """Whether two looks at the same process, some time apart, prove that nobody can wake it."""
    if before is None or before != now or now.threads != 1:
        return False
    if len(now.call) < 5 or now.call[0] != _FUTEX.get(machine):  # noqa: PLR2004 - number, address, operation, value, deadline
        return False
    operation, deadline = now.call[2], now.call[4]
    return bool(operation & _PRIVATE) and operation & _COMMAND in (_WAIT, _WAIT_BITSET) and not deadline
