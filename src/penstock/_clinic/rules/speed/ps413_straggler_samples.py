"""PS413 straggler-samples

## What it finds
A few samples that take many times as long as the others, and hold up the batches behind them.

## Why it matters
torch gives batch k to worker k mod n and delivers in order: when one batch is late, finished ones wait
behind it, and workers that could go on get no work. Training stutters, often once in every `num_workers`
batches.

## How we know
How long each sample took, and the schedule that follows from it in order and in any order, reckoned from
the times seen. The experiment runs the loader with `in_order=False`, or with our loader. It is a warning
only if that was at least 1.5 times as fast.

## What to do
`in_order=False` where the order of batches does not matter, or make the slow samples cheaper; our loader
gives the next batch to whoever is free.

## When we stay silent
When samples take about equally long, when slow ones are many, with fewer than two workers, when order is
free already. Where the program waits, but less than a third of its time, it is an info.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock._clinic import pace
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.slowness import PROMISING, WORTH, Slow, percent, seconds, slow_loaders
from penstock._lab.plan import Change

# A sample that takes so many times the median is slow by its nature, not by the noise of a machine …
SLOW = 6.0
# … unless the median is next to nothing: then a page fault or a collection of garbage looks like that.
SLOW_S = 0.05
# Together they must take a good part of the time that all samples take, and not be a hiccup or two.
PART, SEVERAL = 0.3, 3
# More of them than this are no exception.
FEW = 0.25
# Fewer samples than this say nothing about what is usual.
ENOUGH = 16


@dataclass(frozen=True, slots=True)
class _Stragglers:
    indices: tuple[Any, ...]
    slow_s: float
    median_s: float
    samples: int
    gain: float


class StragglerSamples:
    """A few slow samples hold up the rest."""

    code: ClassVar[str] = "PS413"
    cause: ClassVar[str] = "straggler-samples"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose batches wait for a few slow samples."""
        for slow in slow_loaders(facts):
            if slow.workers > 1 and slow.is_worth_a_word and slow.loader.settings.get("in_order", True):
                found = _stragglers(facts, slow)
                if found is not None and found.gain >= PROMISING:
                    finding = self._finding(facts, slow, found)
                    yield finding if slow.is_worth_a_trial else replace(finding, severity="info")

    def _finding(self, facts: Facts, slow: Slow, found: _Stragglers) -> Finding:
        waits = facts.passes(slow.loader.key)[0].waits
        rhythm = pace.period(waits)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"{len(found.indices)} of {found.samples} samples take {seconds(found.slow_s)}, the others "
                f"{seconds(found.median_s)}, and finished batches wait behind them"
            ),
            where=slow.loader.dataset.site or slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("slow samples", ", ".join(map(str, found.indices[:8])), "samples"),
                Evidence("longest wait", seconds(max(waits, default=0.0)), "observed run"),
                *(
                    (Evidence("long waits come every", f"{rhythm} batches", "observed run"),)
                    if rhythm
                    else ()
                ),
                Evidence("gain to expect if order were free", f"{found.gain:.1f}x", "samples"),
            ),
            prescription=_prescription(slow),
            experiments=tuple(_experiments(slow)),
        )


def _stragglers(facts: Facts, slow: Slow) -> _Stragglers | None:
    assert facts.observed is not None
    taken = [seen for seen in facts.observed.samples if seen.loader == slow.loader.key]
    if len(taken) < ENOUGH:
        return None
    median = statistics.median(seen.seconds for seen in taken)
    line = max(SLOW * median, SLOW_S * slow.work.crowding(slow.workers, slow.cpus))
    late = [seen for seen in taken if seen.seconds > line]
    if not SEVERAL <= len(late) <= FEW * len(taken):
        return None
    if sum(seen.seconds for seen in late) < PART * sum(seen.seconds for seen in taken):
        return None
    prefetch = slow.loader.settings.get("prefetch_factor") or 2
    step = slow.pace.batch_step_s
    in_order = pace.in_order_s(slow.work.durations, slow.workers, prefetch=prefetch, step_s=step)
    any_order = pace.any_order_s(slow.work.durations, slow.workers, step_s=step)
    return _Stragglers(
        indices=tuple(dict.fromkeys(seen.index for seen in late)),
        slow_s=statistics.median(seen.seconds for seen in late),
        median_s=median,
        samples=len(taken),
        gain=in_order / any_order if any_order else 1.0,
    )


def _prescription(slow: Slow) -> Prescription:
    if "in_order" in slow.loader.settings:
        return slow.set_option(
            "in_order", new=False, expect="finished batches no longer wait behind a slow one"
        )
    return Prescription(
        change="make the slow samples cheaper, or use our loader: from penstock import DataLoader",
        expect=f"training no longer waits {percent(slow.pace.wait_share)} of the time",
    )


def _experiments(slow: Slow) -> Iterator[Experiment]:
    if "in_order" in slow.loader.settings:
        yield Experiment(
            title="in_order=True against in_order=False",
            change=Change(settings={"in_order": False}),
            measure="faster",
            ratio=WORTH,
            drive="script",  # what the program does between batches is what others can be made in
        )
    yield Experiment(
        title="our loader in place, which gives the next batch to whoever is free",
        change=Change(use_penstock=True),
        measure="faster",
        ratio=WORTH,
        drive="script",
    )
