"""PS211 worker-out-of-memory

## What it finds
A worker that was killed, or failed, because memory ran out.

## Why it matters
The kernel ends a process without a word; torch can only say "DataLoader worker (pid N) is killed by signal:
Killed". Each worker has memory of its own, so what fits once may not fit `num_workers` times.

## How we know
The worker died by SIGKILL while the kernel counted an out-of-memory kill or memory was near its limit; or it
raised MemoryError; or it held the most when the exam ended the program, just before. The experiments run the
same loader with fewer workers under the same limit, or without the sample that it was at. What made the
memory grow has a finding of its own, where it is known: PS213 (copy-on-write), PS214 (caches), PS215
(prefetched batches).

## What to do
Fewer workers, smaller batches, fewer batches ahead; or more memory.

## When we stay silent
When a worker was killed with memory to spare: somebody else did that (PS812).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.failures import worker_deaths
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.inflight import set_option
from penstock._clinic.naming import loader_named, option, sample_named
from penstock._clinic.said import Said, loader_of
from penstock._clinic.shortage import is_out_of_memory, raised
from penstock._clinic.trying import without
from penstock._lab.plan import Change
from penstock._lab.record import Failure, LoaderSeen, Trial


class WorkerOutOfMemory:
    """A worker that memory ran out for."""

    code: ClassVar[str] = "PS211"
    cause: ClassVar[str] = "worker-out-of-memory"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when memory ran out in a worker."""
        for trial in facts.trials:
            found = _killed(trial) or _raised(trial) or _held(trial) or _killed_whole(trial)
            if found is not None:
                yield self._finding(facts, trial, found)
                return

    def _finding(self, facts: Facts, trial: Trial, found: Said) -> Finding:
        loader = loader_of(facts, trial, found.failure)
        key = loader.key if loader is not None else None
        limit = trial.host.memory_limit
        workers = int(loader.settings.get("num_workers") or 0) if loader is not None else 0
        spare = 0 if _needs_no_workers(facts, key) else workers  # with how many one could do without some
        room = f"than the {amounts.size(limit)} of memory there are" if limit else "memory than there is"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=f"{found.line}: {loader_named(loader)}{_with(workers)} needs more {room}",
            prescription=_prescription(loader, spare),
            evidence=tuple(_evidence(trial, found)),
            where=loader.site if loader is not None else None,
            loader=key,
            experiments=_experiments(spare, found),
            stopped_at_s=_when(trial, found),
        )


def _with(workers: int) -> str:
    return f" with {amounts.count(workers, 'worker')}" if workers else ""


def _killed(trial: Trial) -> Said | None:
    deaths = [each for each in worker_deaths(trial) if each.status == -signal.SIGKILL]
    if not deaths or not is_out_of_memory(trial):
        return None
    first = deaths[0]
    key = Failure("", loader=first.loader, worker=first.worker, index=first.index, at_s=first.at_s)
    return Said(f"worker {first.worker} was killed by SIGKILL for want of memory", trial, key)


def _raised(trial: Trial) -> Said | None:
    failure = raised(trial)
    if failure is None:
        return None
    return Said(f"worker {failure.worker} raised {failure.type}", trial, failure)


def _held(trial: Trial) -> Said | None:
    """The worker that held the most when the exam ended the program, before the kernel would have."""
    heaviest = max(trial.looks, key=lambda look: look.uss, default=None)
    if trial.ended_by != "memory" or heaviest is None or heaviest.role != "worker":
        return None
    at = f" at {sample_named(heaviest.index)}" if heaviest.index is not None else ""
    line = f"worker {heaviest.worker} held {amounts.size(heaviest.uss)}{at} when memory ran out"
    key = Failure(
        "", loader=heaviest.loader, worker=heaviest.worker, index=heaviest.index, at_s=trial.seconds
    )
    return Said(line, trial, key)


def _killed_whole(trial: Trial) -> Said | None:
    """The program itself, if it was the largest when its workers needed more."""
    is_at_work = any(seen.workers and seen.ended_s is None for seen in trial.iterators)
    if trial.outcome != "oom" or trial.status != -signal.SIGKILL or not is_at_work:
        return None
    return Said("the program was killed by SIGKILL for want of memory while its workers ran", trial)


def _when(trial: Trial, found: Said) -> float | None:
    return found.failure.at_s if found.failure is not None else trial.seconds


def _evidence(trial: Trial, found: Said) -> Iterator[Evidence]:
    yield Evidence("what happened", found.line, "observed run")
    if found.failure is not None and found.failure.text:
        yield Evidence("what was said", found.failure.text.splitlines()[0], found.source)
    if trial.host.oom_kills:
        kills = f"{trial.host.oom_kills} during the trial"
        yield Evidence("kills for want of memory that the kernel counted", kills, "host")
    most = max((seen.tree_pss for seen in trial.vitals), default=0)
    if most:
        yield Evidence("most memory of all processes", amounts.size(most), "observed run")
    if trial.host.memory_limit:
        yield Evidence("limit of memory", amounts.size(trial.host.memory_limit), "host")


def _experiments(workers: int, found: Said) -> tuple[Experiment, ...]:
    index = found.failure.index if found.failure is not None else None
    fewer = [
        Experiment(
            title=f"the same loader with {amounts.count(count, 'worker')} under the same limit",
            change=Change(settings={"num_workers": count}),
        )
        for count in (1, 0)
        if count < workers
    ]
    return (*fewer, *without(index))


def _needs_no_workers(facts: Facts, key: str | None) -> bool:
    """Whether memory runs out without workers too: then fewer of them are no way out."""
    alone = facts.at(key, 0) if key is not None else None
    return alone is not None and alone.outcome == "oom"


def _prescription(loader: LoaderSeen | None, workers: int) -> Prescription:
    if loader is None or workers <= 1:
        return Prescription(
            change="give the program more memory, or make its batches smaller",
            expect="the worker is not killed",
        )
    fewer = max(1, workers // 2)
    return Prescription(
        change=f"{option(loader, 'num_workers', fewer)}, or more memory",
        expect="fewer copies of what each worker holds fit into the same memory",
        fix=set_option(loader, "num_workers", fewer),
    )
