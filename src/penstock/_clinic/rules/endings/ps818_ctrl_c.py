"""PS818 ctrl-c

## What it finds
A program that was interrupted (Ctrl-C, SIGINT), and what its workers did then: ended as well, printed
tracebacks of their own, or stayed.

## Why it matters
The signal goes to every process of the terminal. The traceback that matters drowns in those of the workers,
and workers that ignore it keep memory and devices.

## How we know
`KeyboardInterrupt` in the consumer itself; in which workers it was raised too, how many tracebacks were
printed and which workers were left behind.

## What to do
Let workers ignore SIGINT (`signal.signal(signal.SIGINT, signal.SIG_IGN)` in `worker_init_fn`) and end them
from the consumer, or use `from penstock import DataLoader`, which does.

## When we stay silent
When nobody interrupted the program, and when only a worker was interrupted (see PS812).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import count
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Prescription
from penstock._lab.record import Failure, Trial

INTERRUPT = "KeyboardInterrupt"
# How an interrupted program ends: by the signal, or with the shell's number for it.
STATUSES = frozenset({-2, 130})


class CtrlC:
    """The program was interrupted."""

    code: ClassVar[str] = "PS818"
    cause: ClassVar[str] = "ctrl-c"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when an interrupt has ended the program."""
        trial = facts.observed
        if trial is not None and _is_interrupted(trial):
            yield self._finding(trial)

    def _finding(self, trial: Trial) -> Finding:
        said = _tracebacks(trial)
        hit = sorted(
            {each.worker for each in trial.failures if _is_interrupt(each) and each.worker is not None}
        )
        own = [each.at_s for each in trial.failures if _is_interrupt(each) and each.worker is None]
        loader = next((seen for seen in trial.loaders if seen.settings.get("num_workers")), None)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            confidence="observed",
            message=_sentence(trial, len(hit), said),
            where=loader.site if loader else None,
            loader=loader.key if loader else None,
            evidence=(
                Evidence("workers that it reached", ", ".join(map(str, hit)) or "none", "observed run"),
                Evidence("tracebacks of the interrupt", str(said), "standard error"),
                Evidence("workers left", str(trial.left_workers), "observed run"),
            ),
            prescription=Prescription(
                change="ignore SIGINT in workers (signal.signal(signal.SIGINT, signal.SIG_IGN) in "
                "worker_init_fn), or from penstock import DataLoader",
                expect="one traceback, of the consumer, and nothing left",
            ),
            stopped_at_s=own[0] if own else trial.seconds,
        )


def _is_interrupted(trial: Trial) -> bool:
    if trial.ended_by != "itself":
        return False
    own = [each for each in trial.failures if each.worker is None and _is_interrupt(each)]
    return trial.status in STATUSES or (bool(own) and trial.status != 0)


def _is_interrupt(failure: Failure) -> bool:
    return failure.type.endswith(INTERRUPT)


def _sentence(trial: Trial, hit: int, said: int) -> str:
    what = [f"reached {count(hit, 'worker')}"] if hit else []
    what += [f"printed {count(said, 'traceback')}"] if said else []
    what += [f"left {count(trial.left_workers, 'worker')}"] if trial.left_workers else []
    return (
        f"an interrupt ended the program: it {', '.join(what)}" if what else "an interrupt ended the program"
    )


def _tracebacks(trial: Trial) -> int:
    return sum(line.startswith(INTERRUPT) for line in trial.stderr.splitlines())
