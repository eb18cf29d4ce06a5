"""Looks after the workers that the consumer waits for: warns about a quiet one, ends a stuck one.

`stall` decides; here it is carried out. What follows the end of a worker is the runtime's: it is told of a
`WorkerLost` like any other. The second time that a ticket stalls there is no other try, but an error.

Runs on the consumer's thread, only while it waits and nothing comes.
"""

from __future__ import annotations

import platform
import time
import warnings
from typing import Any, Literal, NamedTuple, Protocol

from penstock._engine.black_box import Report, last_calls
from penstock._engine.native import native_calls
from penstock._engine.stall import Observation, Patience, Verdict
from penstock.errors import WorkerLostError

STALLED = "stalled"  # the reason of the `WorkerLost`

# After SIGKILL a process is gone at once, unless the kernel itself waits, such as for a dead file server.
KILL_LIMIT_S = 10.0

_LOOKS = 4  # how many looks a limit takes at least


class Watched(Protocol):
    """The workers, as they are looked at from here; `backends` say what each does."""

    def observe(self, worker: int) -> Observation | None: ...
    def report(self, worker: int) -> Report: ...
    def ask_stack(self, worker: int) -> str: ...
    def kill(self, worker: int, reason: str) -> None: ...


class Ticket(NamedTuple):
    """A ticket that a worker is waited for."""

    worker: int
    number: int
    indices: Any


class Lookout:
    """The looks of one iterator."""

    def __init__(self, warn_s: float | Literal["auto"] | None = None, timeout_s: float | None = None) -> None:
        """`warn_s` and `timeout_s` are the options `stall_warn` and `stall_timeout`; None is for ever."""
        self._warn_s, self._timeout_s = warn_s, timeout_s
        self._patience: dict[int, Patience] = {}
        self._ended: dict[int, int] = {}  # pids of workers that we have killed, by ticket

    @property
    def is_on(self) -> bool:
        """Whether there is anything to look for."""
        return self._warn_s is not None or self._timeout_s is not None

    def step_s(self, most: float) -> float:
        """How long to sleep between two looks, at most."""
        limits = [
            limit / _LOOKS for limit in (self._warn_s, self._timeout_s) if isinstance(limit, (int, float))
        ]
        return min([most, *limits])

    def begin(self) -> None:
        """Another epoch: its tickets are new ones."""
        self._ended.clear()

    def look(self, backend: Watched, tickets: list[Ticket]) -> None:
        """Look at the workers of these tickets, each of which holds up the consumer."""
        for ticket in tickets:
            seen = backend.observe(ticket.worker)
            if seen is not None:
                self._look_at(backend, ticket, seen)

    def _look_at(self, backend: Watched, ticket: Ticket, seen: Observation) -> None:
        patience = self._patience.get(ticket.worker)
        if patience is None:
            patience = Patience(self._warn_s, self._timeout_s, platform.machine())
            self._patience[ticket.worker] = patience
        told = backend.report(ticket.worker)
        verdict = patience.judge(time.monotonic(), seen, told.tail_s)
        if self._ended.get(ticket.number) == seen.pid:
            if patience.quiet_s > KILL_LIMIT_S + (self._timeout_s or 0):
                raise stalled(
                    ticket, seen, told, [], "it was sent SIGKILL, but the kernel does not let it go"
                )
        elif verdict is not Verdict.NOTHING:
            stack = [] if seen.is_stopped else _stack(backend, ticket.worker, seen.pid)
            if verdict is Verdict.WARN:
                after = backend.observe(ticket.worker)
                if after is not None:
                    patience.excuse(after)
                warnings.warn(self._warning(ticket, seen, told, stack, patience.quiet_s), stacklevel=8)
                return
            if ticket.number in self._ended:
                raise stalled(
                    ticket, seen, told, stack, "it is the second worker that did not get any further here"
                )
            self._ended[ticket.number] = seen.pid
            backend.kill(ticket.worker, STALLED)

    def _warning(
        self, ticket: Ticket, seen: Observation, told: Report, stack: list[str], quiet_s: float
    ) -> str:
        who = f"DataLoader worker {ticket.worker} (pid {seen.pid})"
        lines = [
            f"[PS606] {who} has made no progress for {quiet_s:.3g} s",
            f"  why:  {_where(ticket, seen, told)}",
            *stack,
            f"  next: {_NEXT.format(self._timeout_s) if self._timeout_s is not None else _NO_NEXT}",
        ]
        return "\n".join(lines)


def stalled(ticket: Ticket, seen: Observation, told: Report, stack: list[str], why: str) -> WorkerLostError:
    """The error for a ticket that no worker gets done."""
    return WorkerLostError(
        "PS606",
        f"DataLoader worker {ticket.worker} (pid {seen.pid}) stalled, and another try does not help",
        why="\n".join([f"{why}; {_where(ticket, seen, told)}", *stack]),
        fix="give the read or the lock that it waits for a deadline of its own; "
        "if it is only slow, raise stall_timeout, or pass stall_timeout=None to wait for ever",
    )


def where(report: Report | Any, indices: Any) -> str:
    """What a worker was doing, in words: its phase, and the sample if it is known."""
    words = f"it was {report.phase}" if report.phase else ""
    if report.position is None:
        return words
    index = report.index
    if index is None:
        try:
            index = repr(indices[report.position])
        except (TypeError, IndexError, KeyError):
            return f"{words} the sample at position {report.position} of its batch"
    return f"{words} sample index {index} (position {report.position} in its batch)"


def _where(ticket: Ticket, seen: Observation, told: Report) -> str:
    mine = told.number in (None, ticket.number)
    at = where(told, ticket.indices if mine else None)
    if seen.is_stopped:
        asleep = "it is stopped (SIGSTOP)"
    else:
        asleep = f"it sleeps in the kernel, in `{seen.wchan}`" if seen.wchan else f"its state is {seen.state}"
    return "; ".join(filter(None, (at, asleep)))


def _stack(backend: Watched, worker: int, pid: int) -> list[str]:
    text = backend.ask_stack(worker)  # in any case: the black box keeps it for the end of the worker
    calls = native_calls(pid)
    return _lines(calls) if calls else stack_lines(text)


def stack_lines(stack: str) -> list[str]:
    """The last calls of a stack, to follow the `why` of an error; none without a stack."""
    return _lines(last_calls(stack))


def _lines(calls: list[str]) -> list[str]:
    return (
        ["        its last calls, the latest first:", *(f"          {call}" for call in calls)]
        if calls
        else []
    )


_NEXT = "after {} s it is ended, and its batch is made once more; stall_timeout=None waits for ever"
_NO_NEXT = "it is left alone, because stall_timeout is None"
