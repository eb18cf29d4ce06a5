"""PS813 blocking-io

## What it finds
A worker, or the program itself, that waits for ever for input: a socket without a time-out, a pipe or FIFO
that nobody writes to, a lock file that nobody removes, a child process that does not end.

## Why it matters
One stalled answer freezes the whole training: the program waits for that worker's batch, without a message.

## How we know
Stacks and kernel waits: the worker is in the user's code, in a read of a socket or pipe, a file lock or a
wait for a child, and neither computes nor receives anything; the others are idle. The proof sets a time-out,
or leaves that sample out: an error, or the next batch, comes where there was silence.

## What to do
Give every read a time-out and let the dataset retry or raise; `DataLoader(timeout=…)` only turns the silence
into an error without a name.

## When we stay silent
When bytes still arrive or the worker computes (slow is not hung), when it waits for a lock or a dead thread
(PS111, PS112), and when the connection was shared across the fork (PS114).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.hang import (
    Hang,
    Stuck,
    hangs,
    is_held,
    judge,
    lock_name,
    program_threads,
    shared_pipe,
    stuck_line,
)
from penstock._clinic.naming import at_place, place, sample_named, short
from penstock._clinic.trying import mended
from penstock._lab.record import LoaderSeen, Trial

_WORDS = {
    "socket": "an answer from a socket",
    "pipe": "data from a pipe",
    "file-lock": "a file lock that somebody else holds",
    "child": "a child process that does not end",
    "poll": "something to become readable",
    "sleep": "something that does not come, asking again and again",
    "file": "a read of the storage",
    "futex": "a lock that is never released",
    "running": "something that never ends",
    "unknown": "something that does not come",
}


class BlockingIo:
    """A read without a time-out, whose other side is silent."""

    code: ClassVar[str] = "PS813"
    cause: ClassVar[str] = "blocking-io"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a process waits for input that does not come."""
        for hang in hangs(facts):
            stuck, loader = hang.first, hang.loader_in(facts)
            if (
                stuck is None
                or not _is_of_input(facts, hang, stuck)
                or _is_shared(facts, hang, stuck, loader)
            ):
                continue
            yield self._finding(facts, hang, stuck)
            return

    def _finding(self, facts: Facts, hang: Hang, stuck: Stuck) -> Finding:
        line = stuck_line(stuck, facts.source)
        for_what = (
            f"`{lock_name(stuck, facts.source)}`" if lock_name(stuck, facts.source) else _WORDS[stuck.wait]
        )
        also = _also_at_zero(facts, hang)
        main = stuck.look.main
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{stuck.named} waits for ever for {for_what}{at_place(stuck.site)}, at"
                f" {sample_named(stuck.index)}{', with num_workers=0 too' if also else ''}"
            ),
            prescription=Prescription(
                f"give the call{at_place(stuck.site)} a time-out, and retry or raise when it passes",
                "a stalled answer becomes an exception that names its sample",
                fix=Fix("socket-timeout", stuck.site, {"wait": stuck.wait}),
            ),
            evidence=(
                Evidence(
                    f"{stuck.named} waits at",
                    f"{place(stuck.site)} {short(line or '', 60)}".strip(),
                    "stacks",
                ),
                Evidence("its wait in the kernel", (main.wchan if main else "") or stuck.wait, "stacks"),
                Evidence(
                    "innermost function", stuck.inner.function if stuck.inner else "not known", "stacks"
                ),
                Evidence("waited", f"{hang.waited_s:.0f} s without a byte", "observed run"),
            ),
            where=stuck.site,
            loader=hang.loader,
            confidence="suspected" if stuck.wait in {"sleep", "file", "unknown"} else "observed",
            experiments=_experiments(stuck),
            stopped_at_s=hang.since_s,
        )


def _is_of_input(facts: Facts, hang: Hang, stuck: Stuck) -> bool:
    if hang.signature == "read":
        return True
    # A lock that hangs without any worker or thread is no matter of forks: the program waits for itself.
    is_forked = bool(program_threads(hang)) or is_held(hang.loader_in(facts))
    is_alone = stuck.worker is None or (_also_at_zero(facts, hang) and not is_forked)
    return hang.signature == "lock" and is_alone


def _also_at_zero(facts: Facts, hang: Hang) -> bool:
    zero = facts.at(hang.loader or "", 0)
    return zero is not None and zero is not hang.trial and judge(zero) is not None


def _is_shared(facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None) -> bool:
    """Whether workers share a connection that works without them: then that is the cause (PS114, PS115)."""
    if shared_pipe(facts, hang) is not None:
        return True
    zero: Trial | None = facts.at(hang.loader or "", 0)
    has_connection = any(thing.kind in {"socket", "client"} for thing in (loader.things if loader else ()))
    return stuck.worker is not None and has_connection and zero is not None and zero.outcome == "ok"


def _experiments(stuck: Stuck) -> tuple[Experiment, ...]:
    if stuck.wait == "futex":
        return (mended("no-locks", "locks left out"),)
    deadline = mended("sample-deadline", "no sample waited for longer than 2 s", brings="TimeoutError")
    timed = mended("socket-timeout", "every socket, pipe and child with a time-out", brings="TimeoutError")
    return (deadline, timed) if stuck.wait in {"socket", "pipe", "child", "poll"} else (deadline,)
