"""PS819 orphan-workers

## What it finds
Worker processes that are still there when the program itself has ended, or the process of it that they work
for.

## Why it matters
They keep memory, shared memory, files and the accelerator, and the next run fails for want of them.

## How we know
Processes of the program that were alive after its end, or that lived on for seconds without a parent.
torch's workers look for their parent only between batches: one that is stuck in a sample never looks.

## What to do
End the program in the ordinary way (no `os._exit`, no SIGKILL) so that its workers are told, put time-outs
on reads, or use `from penstock import DataLoader`, whose workers die with their parent.

## When we stay silent
When nothing was left, and when we ended the program ourselves or it was killed for want of memory (PS211).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import count
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.shortage import is_out_of_memory
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
        loader = _with_workers(trial) if trial is not None else None
        if trial is None or loader is None:
            return
        # Whom the kernel has killed for want of memory did not choose its end.
        if trial.ended_by == "itself" and trial.left_workers and not is_out_of_memory(trial):
            whom = f"the program, which ended {_ending(trial.status)}"
            yield self._finding(trial.left_workers, whom, loader)
        elif trial.outlived_workers:
            whom = "the process that they worked for, which was killed or ended by os._exit"
            yield self._finding(trial.outlived_workers, whom, loader)

    def _finding(self, workers: int, whom: str, loader: LoaderSeen) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            confidence="observed",
            message=f"{count(workers, 'worker')} outlived {whom}",
            where=loader.site,
            loader=loader.key,
            evidence=(
                Evidence("workers left", str(workers), "observed run"),
                Evidence("left by", whom, "observed run"),
            ),
            prescription=Prescription(
                change="end processes in the ordinary way, without os._exit or SIGKILL, or "
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
