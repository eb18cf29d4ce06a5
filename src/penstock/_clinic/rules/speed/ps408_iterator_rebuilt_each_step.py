"""PS408 iterator-rebuilt-each-step

## What it finds
A program that calls `iter(loader)` for every step, as `next(iter(loader))` does, and takes one or two
batches from each iterator.

## Why it matters
Each call starts all workers, lets them prefetch batches that nobody takes, and ends them again. With
shuffling, the same samples may come again and others never.

## How we know
The passes of the observed run: how many, how many batches each gave, and how long each took to start. The
experiment lets the program go on with the iterator that it has. It is a warning only if that was at least
1.5 times as fast.

## What to do
Make the iterator once, outside the loop, and a new one when it is exhausted.

## When we stay silent
When passes go on to their end or for more than four batches, when there were few of them, when they cost
little. Where that is less than a third of the time, it is an info.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.slowness import PLAIN, WORTH, WORTH_SHARE, Slow, percent, seconds, slow_loaders
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen

# Fewer passes than this may be a look at the data before training.
OFTEN = 4
# Batches that a step takes from an iterator.
FEW = 4


class IteratorRebuiltEachStep:
    """A new iterator, and new workers, for each step."""

    code: ClassVar[str] = "PS408"
    cause: ClassVar[str] = "iterator-rebuilt-each-step"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader of which iterators are made for a batch or two."""
        for slow in slow_loaders(facts):
            short = [seen for seen in slow.passes if _is_short(seen, slow.loader.length)]
            if len(short) < OFTEN:
                continue
            lost_s = _lost_s(slow, short)
            if lost_s >= PLAIN * slow.worth_s and slow.matters(lost_s):
                finding = self._finding(slow, short)
                is_doubtful = lost_s < slow.worth_s or lost_s < WORTH_SHARE * _seconds(slow, short)
                yield replace(finding, severity="info") if is_doubtful else finding

    def _finding(self, slow: Slow, short: list[IteratorSeen]) -> Finding:
        each = sum(seen.start_s + sum(seen.waits) + (seen.shutdown_s or 0.0) for seen in short) / len(short)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"the program makes a new iterator for each step: {len(short)} iterators gave "
                f"{sum(seen.batches for seen in short)} batches, {seconds(each)} each"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("share of the time in new iterators", percent(slow.pace.wait_share), "observed run"),
                Evidence("workers started", str(sum(len(seen.workers) for seen in short)), "observed run"),
            ),
            prescription=Prescription(
                change="make the iterator once, before the loop: batches = iter(loader), then next(batches)",
                expect="workers start once, and every sample comes once in an epoch",
                fix=Fix("hoist-iterator", slow.loader.site, {"loader": slow.loader.name}),
            ),
            experiments=(
                Experiment(
                    title="the program goes on with the iterator that it has",
                    change=Change(mends=("reuse-iterator",)),
                    measure="faster",
                    ratio=WORTH,
                    drive="script",
                ),
            ),
        )


def _is_short(seen: IteratorSeen, length: int | None) -> bool:
    if not 1 <= seen.batches <= FEW or seen.end == "exhausted":
        return False
    return length is None or length > seen.batches


def _lost_s(slow: Slow, short: list[IteratorSeen]) -> float:
    """What iterators cost at both ends."""
    return slow.pace.wait_s + _ends_s(slow, short)


def _seconds(slow: Slow, short: list[IteratorSeen]) -> float:
    """All passes, each with the end of its workers."""
    return slow.pace.seconds + _ends_s(slow, short)


def _ends_s(slow: Slow, short: list[IteratorSeen]) -> float:
    # Ends that take longer than starts wait for busy workers: that is another cause.
    return min(slow.pace.wait_s, sum(seen.shutdown_s or 0.0 for seen in short))
