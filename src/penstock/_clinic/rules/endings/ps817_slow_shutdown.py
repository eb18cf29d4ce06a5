"""PS817 slow-shutdown

## What it finds
A loop over a loader that is left early, and then waits for seconds until busy workers have ended.

## Why it matters
torch waits up to five seconds for each worker to finish what it does before it ends it by force: a `break`,
an exception or the end of a short epoch costs that much.

## How we know
How long the end of an iterator took in the observed run. The experiment runs the program with our loader,
which ends busy workers at once.

## What to do
Make samples short enough to be waited for, go through the loader to its end, or use `from penstock import
DataLoader`.

## When we stay silent
When iterators end within three seconds, and take less than a third of the program's time together
(what takes less than half a second does not count).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.slowness import WORTH_SHARE, seconds
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen, LoaderSeen

# Idle workers end in a few hundredths of a second; torch's own patience with a busy one is 5 s.
LONG_S = 3.0
# Where it is paid again and again, in each epoch, less than that is much.
NOTICED_S, AGAIN = 0.5, 2


class SlowShutdown:
    """Leaving a loop waits for workers that are still busy."""

    code: ClassVar[str] = "PS817"
    cause: ClassVar[str] = "slow-shutdown"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose iterators end slowly."""
        for loader in facts.loaders:
            passes = facts.passes(loader.key)
            slow = [seen for seen in passes if (seen.shutdown_s or 0.0) >= NOTICED_S]
            if any((seen.shutdown_s or 0.0) >= LONG_S for seen in slow) or _adds_up(facts, slow):
                yield self._finding(loader, max(slow, key=lambda seen: seen.shutdown_s or 0.0))

    def _finding(self, loader: LoaderSeen, seen: IteratorSeen) -> Finding:
        took = seconds(seen.shutdown_s or 0.0)
        workers = len(seen.workers) or loader.settings.get("num_workers")
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=f"leaving the loop after {seen.batches} batches took {took}: {workers} workers were busy",
            where=loader.site,
            loader=loader.key,
            evidence=(
                Evidence("end of the iterator", took, "observed run"),
                Evidence("batches taken", f"{seen.batches} of {loader.length or 'unknown'}", "observed run"),
            ),
            prescription=Prescription(
                change="from penstock import DataLoader, or take every batch, or make samples quicker",
                expect="busy workers are ended at once",
            ),
            experiments=(
                Experiment(
                    title="the program with our loader, which ends busy workers at once",
                    change=Change(use_penstock=True),
                    measure="silent",
                    drive="script",
                ),
            ),
        )


def _adds_up(facts: Facts, slow: list[IteratorSeen]) -> bool:
    """Whether several ends together take a part of the program's time that is worth an alarm."""
    observed = facts.observed
    if observed is None or len(slow) < AGAIN:
        return False
    began_s = min(seen.began_s for seen in observed.iterators)
    lost_s = sum(seen.shutdown_s or 0.0 for seen in slow)
    return lost_s >= WORTH_SHARE * (observed.seconds - began_s)
