"""Is a worker slow, or stuck? Decided from what is seen of it at two or more moments.

* **It moves** when its black box, its CPU time or its bytes have changed, or when its main thread is in a
  deliberate sleep (`time.sleep`). Then nothing is the matter, however long it takes.
* **It gives signs of life** when its main thread woke up, wants to run, or waits while another thread or a
  child sleeps deliberately: a slow download, a loop with a timeout, a pause between two tries. It may be
  right or wrong, and nobody can tell from outside: it is warned about, and left alone.
* **It is stuck** when there was neither for `stall_timeout` seconds. A stopped process is.

Guarantees:

* A worker that moves is neither warned about nor called stuck; one that gives signs is never called stuck.
* Nor is one of which the kernel does not show what it waits for, unless it is stopped.
* Time counts only while it is looked at: a pause of everybody (a frozen container) is nobody's stall.
* One warning for each attempt of a ticket.

Pure: observations and times in, verdicts out.
"""

from __future__ import annotations

import enum
from typing import Literal, NamedTuple

# With stall_warn="auto": so many times what the slowest recent ticket took, and at least so long.
TAILS = 5
LEAST_WARN_S = 10.0

# Two looks further apart than this count for this long.
MOST_STEP_S = 5.0

# System calls that are a sleep and nothing else: nanosleep, clock_nanosleep.
_SLEEPS = {"x86_64": (35, 230), "aarch64": (101, 115)}
# select, pselect6 and poll, ppoll: a sleep when they watch nothing; with the place of the count of files.
_WATCHES = {"x86_64": {23: 1, 270: 1, 7: 2, 271: 2}, "aarch64": {72: 1, 73: 2}}
_SLEEP_WCHANS = ("hrtimer_nanosleep", "do_nanosleep")

Call = tuple[int, ...]  # a system call and its arguments; empty when the thread is in none


class Verdict(enum.Enum):
    """What a look at a worker says."""

    NOTHING = "nothing"
    WARN = "warn"
    STUCK = "stuck"


class Observation(NamedTuple):
    """A worker at one moment."""

    pid: int
    progress: tuple[int | str | None, ...]  # of the black box: ticket, attempt, then whatever changes
    cpu_s: float  # of the process, its threads and all processes under it
    io_bytes: int  # read and written, by all of them
    wakes: int  # how often the main thread went to sleep
    state: str  # of the main thread: R, S, D, T …
    wchan: str  # the kernel's function in which it sleeps; empty when hidden
    call: Call | None = None  # the system call in which the main thread sleeps; None when hidden
    other_calls: tuple[Call, ...] = ()  # of the other threads, and of the processes under it

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it."""
        return self.state == "T"  # "t" is the stop of a debugger


class Patience:
    """What is remembered of one worker between two looks."""

    def __init__(self, warn_s: float | Literal["auto"] | None, stuck_s: float | None, machine: str) -> None:
        """None is for ever."""
        self._warn_s = warn_s
        self._stuck_s = stuck_s
        self._machine = machine
        self._last: Observation | None = None
        self._looked_at = 0.0
        self._warned: object = None
        self.quiet_s = 0.0  # since it moved
        self.still_s = 0.0  # since it moved or gave a sign

    def judge(self, now: float, seen: Observation, tail_s: float = 0.0) -> Verdict:
        """One more look, at time `now`; `tail_s` is what the slowest recent ticket took."""
        last, self._last = self._last, seen
        step, self._looked_at = min(now - self._looked_at, MOST_STEP_S), now
        if last is None or self._has_moved(last, seen):
            self.quiet_s = self.still_s = 0.0
            return Verdict.NOTHING
        self.quiet_s += step
        self.still_s = 0.0 if self._gives_sign(last, seen) else self.still_s + step
        if self._stuck_s is not None and self.still_s >= self._stuck_s:
            return Verdict.STUCK
        ticket = (seen.pid, *seen.progress[:2])
        if self.quiet_s >= warn_after(self._warn_s, tail_s) and self._warned != ticket:
            self._warned = ticket
            return Verdict.WARN
        return Verdict.NOTHING

    def excuse(self, seen: Observation) -> None:
        """It was disturbed by our own question: what that has changed is no progress."""
        self._last = seen

    def _has_moved(self, last: Observation, seen: Observation) -> bool:
        if (last.pid, last.progress) != (seen.pid, seen.progress):
            return True
        if (last.cpu_s, last.io_bytes) != (seen.cpu_s, seen.io_bytes):
            return True
        if seen.is_stopped:
            return False
        if seen.state == "t":
            return True  # somebody looks at it with a debugger, and takes the time that it takes
        return seen.wchan in _SLEEP_WCHANS or is_sleep(seen.call or (), self._machine)

    def _gives_sign(self, last: Observation, seen: Observation) -> bool:
        if seen.is_stopped:
            return False
        is_hidden = not seen.wchan and (seen.call is None or self._machine not in _SLEEPS)
        return (
            is_hidden
            or seen.state == "R"
            or seen.wakes != last.wakes
            or any(is_sleep(call, self._machine) for call in seen.other_calls)
        )


def warn_after(stall_warn: float | Literal["auto"] | None, tail_s: float) -> float:
    """Seconds without a move after which a warning is due."""
    if stall_warn is None:
        return float("inf")
    return max(LEAST_WARN_S, TAILS * tail_s) if stall_warn == "auto" else stall_warn


def is_sleep(call: Call, machine: str) -> bool:
    """Whether a thread in this system call sleeps because it wants to."""
    if not call:
        return False
    if call[0] in _SLEEPS.get(machine, ()):
        return True
    place = _WATCHES.get(machine, {}).get(call[0])
    return place is not None and len(call) > place and call[place] == 0
