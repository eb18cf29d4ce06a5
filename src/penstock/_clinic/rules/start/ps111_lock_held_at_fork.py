"""PS111 lock-held-at-fork

## What it finds
A worker that waits for ever for a lock which somebody else held at the moment of the fork: another thread of
the program (a cache refresher, a logger, a progress bar), or the program itself.

## Why it matters
A fork copies the lock in its locked state, but not the thread that would release it. The program freezes at
some batch, without any message, on some runs and not on others.

## How we know
Stacks and kernel waits: the worker sleeps in a futex at a line that takes a lock, and does not move; its
other threads are only those that multiprocessing keeps. At the fork the program had other threads. Without
workers the same samples load. The proof runs the loader under spawn, or with the lock left out.

## What to do
Start the workers before the threads, or start them by spawn; or let each process make its lock: what is made
in the worker nobody else can hold.

## When we stay silent
When the worker moves, when the wait is for something else than a lock, and when the program hangs at
num_workers=0 too although it has no other thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import listed
from penstock._clinic.facts import Facts
from penstock._clinic.failures import method_of, worker_deaths
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.hang import Hang, Stuck, dead_thing, hangs, is_held, judge, lock_name, program_threads
from penstock._clinic.naming import at_place, method, place, sample_named
from penstock._clinic.trying import can_ship, mended, ours, under
from penstock._lab.record import LoaderSeen

_LOCKS = frozenset({"lock", "mp-lock"})


class LockHeldAtFork:
    """A worker inherited a lock that nobody will release."""

    code: ClassVar[str] = "PS111"
    cause: ClassVar[str] = "lock-held-at-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a forked worker waits in a lock."""
        for hang in hangs(facts):
            stuck = hang.first
            loader = hang.loader_in(facts)
            if hang.signature != "lock" or stuck is None or stuck.worker is None:
                continue
            if method_of(hang.trial, loader) != "fork" or worker_deaths(hang.trial):
                continue
            if not self._is_lock(facts, hang, stuck, loader):
                continue
            yield self._finding(facts, hang, stuck, loader)
            return

    def _is_lock(self, facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None) -> bool:
        has_locks = any(thing.kind in _LOCKS for thing in (loader.things if loader else ()))
        kind = dead_thing(stuck, facts.source, has_threads=bool(program_threads(hang)), has_locks=has_locks)
        zero = facts.at(hang.loader or "", 0)
        hangs_alone = zero is not None and judge(zero) is not None
        # A lock that another thread, or the main one itself, never gives back stops it without workers too.
        return kind == "lock" and (not hangs_alone or bool(program_threads(hang)) or is_held(loader))

    def _finding(self, facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None) -> Finding:
        name = lock_name(stuck, facts.source) or _path(loader)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=_message(hang, stuck, name),
            prescription=Prescription(
                method(loader, "spawn") + ", or start the workers before the thread that takes the lock",
                "workers get locks of their own and do not wait",
                fix=Fix("set-option", loader.site if loader else None, {"multiprocessing_context": "spawn"}),
            ),
            evidence=_evidence(hang, stuck),
            where=stuck.site,
            loader=hang.loader,
            confidence="proved" if stuck.is_dead else "observed",
            experiments=_experiments(loader),
            remedy=ours(),
            stopped_at_s=hang.since_s,
        )


def _path(loader: LoaderSeen | None) -> str | None:
    things = loader.things if loader else ()
    return next((thing.path for thing in things if thing.kind in _LOCKS), None)


def _message(hang: Hang, stuck: Stuck, name: str | None) -> str:
    lock = f"`{name}`" if name else f"a lock{at_place(stuck.site)}"
    threads = program_threads(hang)
    if not threads:
        who = "which was already held when the worker was forked"
    elif len(threads) == 1:
        who = f"which thread {threads[0]!r} held when the worker was forked"
    else:
        names = f"{len(threads)} other threads ({listed(list(threads))})"
        who = f"which one of {names} held when the worker was forked"
    return f"{stuck.named} waits for ever for {lock}, {who}"


def _evidence(hang: Hang, stuck: Stuck) -> tuple[Evidence, ...]:
    threads = program_threads(hang)
    main = stuck.look.main
    found = [
        Evidence(f"{stuck.named} waits at", place(stuck.site) or "a line of a library", "stacks"),
        Evidence("its wait in the kernel", (main.wchan if main else "") or "futex", "stacks"),
        Evidence("sample in hand", sample_named(stuck.index), "stacks"),
        Evidence("other threads at the fork", listed(list(threads)) or "none", "observed run"),
    ]
    if stuck.is_dead:
        found.append(Evidence("threads left that could release it", "none", "stacks"))
    return tuple(found)


def _experiments(loader: LoaderSeen | None) -> tuple[Experiment, ...]:
    spawned, unlocked = under("spawn"), mended("no-locks", "locks left out in workers")
    return (unlocked, spawned) if can_ship(loader) else (unlocked,)
