"""PS212 fork-out-of-memory

## What it finds
Workers that cannot be started because the system refuses another process of that size.

## Why it matters
A fork promises the child all memory of its parent. Where the system does not hand out more than it has
(`vm.overcommit_memory=2`, `ulimit -v`, a small paging file), the fork of a large process fails with "Cannot
allocate memory", before any batch is made. A limit on the number of processes refuses in the same place.

## How we know
`os.fork` raised errno 12 (or 11) while the loader started its workers. The experiment starts one worker only.

## What to do
Fewer workers, or start them before the program is large.

## When we stay silent
When memory runs out later, in a worker (PS211).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.inflight import set_option
from penstock._clinic.naming import loader_named, option
from penstock._clinic.said import Said, loader_of
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial

_TEXT = re.compile(
    r"\[Errno 12\]|\[Errno 11\] Resource temporarily unavailable|WinError 1455|can't start new thread"
)
_FORK = re.compile(r"popen_fork|popen_spawn|popen_forkserver|os\.fork|_start_worker|process\.py|\.start\(\)")
_PAGING = re.compile(r"WinError 1455|paging file is too small")


class ForkOutOfMemory:
    """A worker that could not be started for want of memory."""

    code: ClassVar[str] = "PS212"
    cause: ClassVar[str] = "fork-out-of-memory"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when a start was refused."""
        for trial in facts.trials:
            found = _refused(trial)
            if found is not None:
                yield self._finding(facts, trial, found)
                return

    def _finding(self, facts: Facts, trial: Trial, found: Said) -> Finding:
        loader = loader_of(facts, trial, found.failure)
        workers = int(loader.settings.get("num_workers") or 0) if loader is not None else 0
        rss = max((seen.main_rss for seen in trial.vitals), default=0)
        large = f" of a process of {amounts.size(rss)}" if rss else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{loader_named(loader)} cannot start {amounts.count(workers, 'worker')}: the system refused "
                f"another copy{large} ({found.line})"
            ),
            prescription=_prescription(loader, workers),
            evidence=tuple(_evidence(trial, found, rss)),
            where=loader.site if loader is not None else None,
            loader=loader.key if loader is not None else None,
            experiments=(
                Experiment("the same loader with 1 worker", Change(settings={"num_workers": 1})),
                Experiment("the same loader without workers", Change(settings={"num_workers": 0})),
            ),
            stopped_at_s=found.failure.at_s if found.failure is not None else trial.seconds,
        )


def _refused(trial: Trial) -> Said | None:
    for failure in trial.failures:
        line = f"{failure.type}: {failure.text.splitlines()[0] if failure.text else ''}"
        if _PAGING.search(line):
            return Said(line, trial, failure)
        is_heard = failure.worker in {None, -1} and failure.phase in {"next", "program"}
        is_start = failure.phase == "start" or (is_heard and _FORK.search(failure.traceback))
        if is_start and _TEXT.search(line):
            return Said(line, trial, failure)
    return None


def _evidence(trial: Trial, found: Said, rss: int) -> Iterator[Evidence]:
    yield Evidence("what was said", found.line, found.source)
    if rss:
        yield Evidence("memory of the consumer", amounts.size(rss), "observed run")
    if trial.host.memory_limit:
        yield Evidence("limit of memory", amounts.size(trial.host.memory_limit), "host")


def _prescription(loader: LoaderSeen | None, workers: int) -> Prescription:
    if loader is None or workers <= 1:
        return Prescription(
            change="make the first iterator before the program loads what makes it large",
            expect="the process is small when it is copied",
        )
    return Prescription(
        change=f"{option(loader, 'num_workers', 1)}, or start workers before the program is large",
        expect="fewer copies of the process are asked for",
        fix=set_option(loader, "num_workers", 1),
    )
