"""PS818 ctrl-c

## What it finds
A program that was interrupted (Ctrl-C, SIGINT) and whose workers answered with tracebacks of their own, or
stayed.

## Why it matters
The signal goes to every process of the terminal. The traceback that matters drowns in those of the workers,
and workers that ignore it keep memory and devices.

## How we know
`KeyboardInterrupt` in the consumer, and as well in workers or with processes left behind.

## What to do
Let workers ignore SIGINT (`signal.signal(signal.SIGINT, signal.SIG_IGN)` in `worker_init_fn`) and end them
from the consumer, or use `from penstock import DataLoader`, which does.

## When we stay silent
When nobody interrupted the program, when only a worker was interrupted (see PS812), when the interrupted
program ended with its one traceback and left nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._lab.plan import Change
from penstock._lab.record import Trial

INTERRUPT = "KeyboardInterrupt"
# How an interrupted program ends: by the signal, or with the shell's number for it.
STATUSES = frozenset({-2, 130})
# Tracebacks of one interrupt: the consumer's own is as it should be.
OWN = 1


class CtrlC:
    """An interrupt left tracebacks of workers, or workers themselves."""

    code: ClassVar[str] = "PS818"
    cause: ClassVar[str] = "ctrl-c"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when an interrupted program did not end cleanly."""
        trial = facts.observed
        if trial is None or not _is_interrupted(trial):
            return
        said = _tracebacks(trial)
        if said > OWN or trial.left_processes:
            yield self._finding(trial, said)

    def _finding(self, trial: Trial, said: int) -> Finding:
        left = f" and left {trial.left_processes} processes" if trial.left_processes else ""
        loader = next((seen for seen in trial.loaders if seen.settings.get("num_workers")), None)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=f"interrupted, the program printed {said} tracebacks{left}",
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            evidence=(
                Evidence("tracebacks of the interrupt", str(said), "standard error"),
                Evidence("processes left", str(trial.left_processes), "observed run"),
            ),
            prescription=Prescription(
                change="ignore SIGINT in workers (signal.signal(signal.SIGINT, signal.SIG_IGN) in "
                "worker_init_fn), or from penstock import DataLoader",
                expect="one traceback, of the consumer, and nothing left",
            ),
            experiments=(
                Experiment(
                    title="the program with our loader, whose workers ignore the interrupt",
                    change=Change(use_penstock=True),
                    measure="gone",
                    drive="script",
                ),
            ),
        )


def _is_interrupted(trial: Trial) -> bool:
    if trial.ended_by != "itself":
        return False
    own = [each for each in trial.failures if each.worker is None and each.type.endswith(INTERRUPT)]
    return bool(own) or trial.status in STATUSES


def _tracebacks(trial: Trial) -> int:
    return sum(line.startswith(INTERRUPT) for line in trial.stderr.splitlines())
