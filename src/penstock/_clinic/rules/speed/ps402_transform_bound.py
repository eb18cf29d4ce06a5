"""PS402 transform-bound

## What it finds
A loader whose workers compute all the time, in the dataset or in collate, on every CPU there is, while the
program waits for them.

## Why it matters
No option of the loader makes the work itself cheaper: only more CPUs, a cheaper transform, or doing it once
and keeping the result.

## How we know
The workers' CPU time by their time in the dataset and in collate; their number by the number of CPUs; and
that a batch waits for its making, not for its hand-over.

## What to do
Make the named part cheaper (a smaller decode, a batched transform, the transform on the accelerator), do it
once ahead of training, or use more cores.

## When we stay silent
When the program hardly waits, when CPUs are idle (PS401), when workers wait more than they compute (PS403,
PS409), when libraries run more threads than there are CPUs (PS414), when a few slow samples hold up the
rest (PS413). It is an info: we know of no change of the loader that helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Prescription
from penstock._clinic.slowness import WORTH_SHARE, Slow, percent, seconds, slow_loaders

# More idle CPU than this, and the workers are not what limits.
ROOM = 0.5


class TransformBound:
    """Workers compute all the time, and training waits for them."""

    code: ClassVar[str] = "PS402"
    cause: ClassVar[str] = "transform-bound"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader that uses all CPUs for the making of batches."""
        for slow in slow_loaders(facts):
            # A remark costs nobody a trial: half the seconds are enough.
            if slow.is_plainly_worth_a_trial and _computes(slow):
                yield self._finding(slow)

    def _finding(self, slow: Slow) -> Finding:
        part = "collate" if slow.work.collate_share > 1 / 2 else "the dataset"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="info",
            confidence="observed",
            message=(
                f"training waits for data {percent(slow.pace.wait_share)} of the time, "
                f"and {slow.workers} workers compute all the while, mostly in {part}"
            ),
            where=slow.loader.dataset.site or slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("a sample", f"{seconds(slow.work.sample_s)} of work", "observed run"),
                Evidence("CPU share of the workers", percent(min(1.0, slow.cpu_share)), "observed run"),
                Evidence("workers", f"{slow.workers} on {slow.cpus:g} CPUs", "settings"),
                *slow.ladder,
            ),
            prescription=Prescription(
                change=f"make {part} cheaper: do once, ahead of training, what gives the same each time",
                expect="each sample costs less; no option of the loader changes that",
            ),
        )


def _computes(slow: Slow) -> bool:
    if slow.workers < int(slow.cpus) or not slow.computes or slow.flow_share < WORTH_SHARE:
        return False
    # Where looks found the workers at work, other programs may have had the CPUs: they were not idle.
    has_room = slow.busy_share is None and (slow.idle_cpus or 0.0) >= ROOM * slow.cpus
    return slow.makes_batches_all_the_time and not has_room
