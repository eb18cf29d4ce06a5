"""PS405 not-fed-fast-enough

## What it finds
A program that waits for data while its workers neither compute nor read all the time: the hand-over of
batches takes the time.

## Why it matters
Training waits for copies between processes.

## How we know
What a batch waits beyond the time that workers need to make it, in the observed run.

## What to do
Hand over less (smaller types, no copies from NumPy to torch), pin memory where there is a device, or use a
loader whose hand-over costs less: `from penstock import DataLoader`.

## When we stay silent
When the program hardly waits, when the making of batches is what takes the time (PS402, PS403), when
batches are of many small tensors (PS410) or of Python objects (PS412), when no workers at all were faster
(PS411). It is an info.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import size
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Prescription
from penstock._clinic.slowness import WORTH, Slow, percent, seconds, slow_loaders

# Batches below this size are handed over in a few milliseconds: what they wait for is something else.
LARGE_NBYTES = 1 << 20
# More of the waiting than this must be hand-over.
MOSTLY = 0.5


class NotFedFastEnough:
    """Hand-over of batches is what training waits for."""

    code: ClassVar[str] = "PS405"
    cause: ClassVar[str] = "not-fed-fast-enough"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose large batches wait for their hand-over."""
        for slow in slow_loaders(facts):
            nbytes = max((seen.batch_nbytes for seen in facts.passes(slow.loader.key)), default=0)
            if slow.is_worth_a_trial and nbytes >= LARGE_NBYTES and _hands_over(slow):
                yield self._finding(slow, nbytes)

    def _finding(self, slow: Slow, nbytes: int) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="info",
            confidence="observed",
            message=(
                f"training waits for data {percent(slow.pace.wait_share)} of the time, "
                f"{percent(slow.hand_over_share)} of that for the hand-over of batches of {size(nbytes)}"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("to make a batch", seconds(slow.work.batch_s), "observed run"),
                Evidence("to hand it over", seconds(slow.hand_over_s), "observed run"),
            ),
            prescription=Prescription(
                change="from penstock import DataLoader, or hand over less (uint8 in place of float32)",
                expect="batches travel without copies",
            ),
        )


def _hands_over(slow: Slow) -> bool:
    without = slow.gain(0)
    return (
        slow.hands_over(MOSTLY)
        and not slow.makes_batches_all_the_time
        and (without is None or without < WORTH)
    )
