"""PS819 orphan-workers

## What it finds
Worker processes that are still there when the program itself has ended.

## Why it matters
They keep memory, shared memory, files and the accelerator, and the next run fails for want of them.

## How we know
Processes of the program that were alive after its end. torch's workers look for their parent only between
batches: one that is stuck in a sample never looks.

## What to do
End the program in the ordinary way (no `os._exit`, no SIGKILL) so that its workers are told, put time-outs
on reads, or use `from penstock import DataLoader`, whose workers die with their parent.

## When we stay silent
When nothing was left, and when we ended the program ourselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import count
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._lab.plan import Change
from penstock._lab.record import LoaderSeen, Trial


class OrphanWorkers:
    """Workers outlive the program."""

    code: ClassVar[str] = "PS819"
    cause: ClassVar[str] = "orphan-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when the program's own end left workers behind."""
        trial = facts.observed
        if trial is None or trial.ended_by != "itself" or not trial.left_workers:
            return
        loader = _with_workers(trial)
        if loader is not None:
            yield self._finding(trial, loader)

    def _finding(self, trial: Trial, loader: LoaderSeen) -> Finding:
        how = _ending(trial.status)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            confidence="observed",
            message=f"{count(trial.left_workers, 'worker')} outlived the program, which ended {how}",
            where=loader.site,
            loader=loader.key,
            evidence=(
                Evidence("workers left", str(trial.left_workers), "observed run"),
                Evidence("end of the program", how, "observed run"),
            ),
            prescription=Prescription(
                change="end the program in the ordinary way, without os._exit or SIGKILL, or "
                "from penstock import DataLoader",
                expect="workers end with the program",
            ),
            experiments=(
                Experiment(
                    title="the program with our loader, whose workers die with their parent",
                    change=Change(use_penstock=True),
                    measure="silent",
                    drive="script",
                ),
            ),
        )


def _with_workers(trial: Trial) -> LoaderSeen | None:
    """The last loader that had workers at work."""
    used = [seen.loader for seen in trial.iterators if seen.workers]
    return trial.loader(used[-1]) if used else None


def _ending(status: int | None) -> str:
    if status is None:
        return "in a way that nobody saw"
    return f"by signal {-status}" if status < 0 else f"with status {status}"
