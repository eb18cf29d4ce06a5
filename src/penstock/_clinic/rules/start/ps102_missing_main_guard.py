"""PS102 missing-main-guard

## What it finds
A script that iterates over its loader at module level, without `if __name__ == "__main__":`, while workers
are started by spawn or forkserver.

## Why it matters
Such a worker imports the script again, comes to the same loop, and tries to start workers of its own. Python
refuses, the worker ends, and the program only says that a worker exited unexpectedly.

## How we know
The worker's own words: it has not finished its bootstrapping phase. The same script under fork, which imports
nothing again, is the proof.

## What to do
Put what shall run once into `def main()` and call it under `if __name__ == "__main__":`.

## When we stay silent
Under fork, and where the workers start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import StartTrouble, cases, is_users, method_of, printed, start_trouble
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import at_place, loader_named
from penstock._clinic.trying import ours, under
from penstock._lab.record import Site, Trial


class MissingMainGuard:
    """Workers run the script again and stop at its loop."""

    code: ClassVar[str] = "PS102"
    cause: ClassVar[str] = "missing-main-guard"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where workers ran into the loop that starts them."""
        for case in cases(facts):
            trouble = start_trouble(case.trial)
            how = method_of(case.trial, case.loader)
            if case.is_caught or trouble is None or trouble.cause != self.cause:
                continue
            site = _loop(case.trial) or (case.loader.site if case.loader else None)
            yield Finding(
                code=self.code,
                cause=self.cause,
                severity="error",
                message=(
                    f"workers of {loader_named(case.loader)} start by {how} and run the whole script again,"
                    f' because the loop{at_place(site)} is not under `if __name__ == "__main__":`'
                ),
                prescription=Prescription(
                    'move the program into `def main()` and call it under `if __name__ == "__main__":`',
                    f"workers start by {how}",
                    fix=Fix("main-guard", site),
                ),
                evidence=(
                    Evidence("start method", how, "settings"),
                    Evidence("what the worker said", _said(trouble), "observed run"),
                ),
                where=site,
                loader=case.loader.key if case.loader else None,
                experiments=(under("fork"),),
                remedy=ours(),
                stopped_at_s=case.failure.at_s,
            )
            return


def _said(trouble: StartTrouble) -> str:
    """The first line that says something: Python's own text begins with an empty one."""
    lines = [line.strip() for line in trouble.text.splitlines() if line.strip()]
    return f"{trouble.type}: {lines[0]} …" if lines else trouble.type


def _loop(trial: Trial) -> Site | None:
    """The line at module level from which a worker tried to start workers."""
    for failure in trial.failures:
        if failure.phase == "start" and failure.site is not None:
            return failure.site
    for raised in printed(trial.stderr):
        if "bootstrapping phase" in raised.text or raised.passes("_check_not_importing_main"):
            for frame in raised.frames:
                if frame.function == "<module>" and is_users(frame.file):
                    return Site(frame.file, frame.line, frame.function)
    return None
