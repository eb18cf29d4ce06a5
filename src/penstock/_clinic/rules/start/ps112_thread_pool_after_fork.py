"""PS112 thread-pool-after-fork

## What it finds
A worker that waits for threads which do not exist in it: the OpenMP pool of torch, the pool of OpenCV, a
ThreadPoolExecutor or a background thread that the program made before the workers were forked.

## Why it matters
A fork copies memory, not threads. The pool's book-keeping says that its threads are there; work given to them
is never done, and the worker waits for ever inside an ordinary operation.

## How we know
Stacks and kernel waits: the worker sleeps in a futex inside an operation of torch or OpenCV, or waits for a
future, a queue or an event that only a thread can serve; the program had more threads than one at the fork.
Without workers the same samples load. The proof runs the loader under spawn, or with one thread.

## What to do
Leave `torch.set_num_threads` at 1 in workers (torch sets it), call `cv2.setNumThreads(0)` in
`worker_init_fn`, make pools in the worker on first use; or start workers by spawn.

## When we stay silent
When the worker moves, when it waits for a lock (PS111) or a client (PS114), and when the program hangs at
num_workers=0 too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import listed
from penstock._clinic.facts import Facts
from penstock._clinic.failures import method_of, worker_deaths
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.hang import Dead, Hang, Stuck, dead_thing, hangs, judge, program_threads, stuck_line
from penstock._clinic.naming import at_place, method, place, sample_named, short
from penstock._clinic.trying import can_ship, mended, ours, under
from penstock._lab.record import LoaderSeen

_TOKENIZERS = "The current process just got forked, after parallelism has already been used"


class ThreadPoolAfterFork:
    """A worker waits for threads that the fork has not copied."""

    code: ClassVar[str] = "PS112"
    cause: ClassVar[str] = "thread-pool-after-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a forked worker waits for a pool; an info where tokenizers say so."""
        for hang in hangs(facts):
            stuck = hang.first
            loader = hang.loader_in(facts)
            if hang.signature != "lock" or stuck is None or stuck.worker is None:
                continue
            if method_of(hang.trial, loader) != "fork" or worker_deaths(hang.trial):
                continue
            kind = _kind(facts, hang, stuck, loader)
            if kind is not None:
                yield self._finding(facts, hang, stuck, loader, kind)
                return
        yield from self._told(facts)

    def _finding(
        self, facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None, kind: Dead
    ) -> Finding:
        line = stuck_line(stuck, facts.source)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=_message(stuck, line, kind),
            prescription=_prescription(loader, stuck, kind),
            evidence=_evidence(hang, stuck, line),
            where=stuck.site,
            loader=hang.loader,
            experiments=_experiments(loader, stuck, kind),
            remedy=ours(),
            stopped_at_s=hang.since_s,
        )

    def _told(self, facts: Facts) -> Iterator[Finding]:
        if facts.observed is None or _TOKENIZERS not in facts.observed.stderr:
            return
        yield Finding(
            code=self.code,
            cause=self.cause,
            severity="info",
            message="tokenizers used its threads before the fork, and does without them in the workers",
            prescription=Prescription(
                "set TOKENIZERS_PARALLELISM=false in the environment",
                "the message goes; nothing else changes",
            ),
            evidence=(Evidence("what tokenizers said", _TOKENIZERS, "observed run"),),
        )


def _kind(facts: Facts, hang: Hang, stuck: Stuck, loader: LoaderSeen | None) -> Dead | None:
    zero = facts.at(hang.loader or "", 0)
    if zero is not None and judge(zero) is not None:
        return None
    has_locks = any(thing.kind in {"lock", "mp-lock"} for thing in (loader.things if loader else ()))
    kind = dead_thing(stuck, facts.source, has_threads=bool(program_threads(hang)), has_locks=has_locks)
    return kind if kind in {"pool", "thread"} else None


def _message(stuck: Stuck, line: str | None, kind: Dead) -> str:
    doing = f"`{short(line, 60)}`" if line else f"an operation{at_place(stuck.site)}"
    if kind == "thread":
        return f"{stuck.named} waits for ever in {doing} for a thread that did not survive the fork"
    return f"{stuck.named} waits for ever in {doing}: the threads of its pool did not survive the fork"


def _evidence(hang: Hang, stuck: Stuck, line: str | None) -> tuple[Evidence, ...]:
    main = stuck.look.main
    seen = hang.iterator
    threads = program_threads(hang)
    return (
        Evidence(
            f"{stuck.named} waits at", f"{place(stuck.site)} {line or ''}".strip() or "a library", "stacks"
        ),
        Evidence("its wait in the kernel", (main.wchan if main else "") or "futex", "stacks"),
        Evidence("sample in hand", sample_named(stuck.index), "stacks"),
        Evidence(
            "threads of the program at the fork", str(seen.native_threads if seen else "?"), "observed run"
        ),
        Evidence("Python threads among them", listed(list(threads)) or "none", "observed run"),
    )


def _prescription(loader: LoaderSeen | None, stuck: Stuck, kind: Dead) -> Prescription:
    expect = "the operation returns in every worker"
    if _is_of_python(stuck, kind):
        change = "make the pool or thread in the worker, when it is first used, not before the workers start"
        fix = Fix("reopen-in-worker", stuck.site)
    else:
        change = "do not raise the number of threads in workers (torch.set_num_threads, cv2.setNumThreads)"
        fix = Fix("one-thread", stuck.site)
    return Prescription(f"{change}; or {method(loader, 'spawn')}", expect, fix=fix)


def _is_of_python(stuck: Stuck, kind: Dead) -> bool:
    """Whether the lost threads are Python's own, and not those of a native library."""
    inner = stuck.inner.file if stuck.inner else ""
    return kind == "thread" or inner.endswith(
        ("_base.py", "thread.py", "threading.py", "pool.py", "queue.py")
    )


def _experiments(loader: LoaderSeen | None, stuck: Stuck, kind: Dead) -> tuple[Experiment, ...]:
    if _is_of_python(stuck, kind):
        mend = mended("restart-threads", "threads of the program started again in each worker")
    else:
        mend = mended("no-raise-threads", "calls that raise the number of threads in workers left out")
    return (mend, under("spawn")) if can_ship(loader) else (mend,)
