"""PS406 too-many-workers

## What it finds
A loader with more workers than the CPUs that the program may use, by the affinity mask and the quota of its
cgroup.

## Why it matters
Workers that share a CPU make no more batches, but each costs its start, its memory and its place in the
queue. `os.cpu_count()` knows nothing of a container's quota.

## How we know
The ladder: samples per second with fewer workers. The experiment repeats the comparison. It is a warning
only if fewer workers were at least 1.5 times as fast, else an info.

## What to do
Lower `num_workers` to the number in the prescription.

## When we stay silent
When there is a CPU for every worker, when the program hardly waits, when workers wait more than they
compute (then more of them than CPUs do good), when there are not very many and none at all are better still
(PS411).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding
from penstock._clinic.slowness import PLAIN, PROMISING, WORTH, Slow, percent, slow_loaders
from penstock._lab.plan import Change

# Twice as many as CPUs is what people set to hide waiting; only above that is it worth a word by itself, or
# where a quota gives the program fewer CPUs than it sees.
MANY = 2


class TooManyWorkers:
    """More workers than CPUs, and fewer were faster."""

    code: ClassVar[str] = "PS406"
    cause: ClassVar[str] = "too-many-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader with more workers than CPUs."""
        for slow in slow_loaders(facts):
            if slow.workers <= slow.most_workers or slow.waits:
                continue
            fewer = _better(slow)
            if fewer is not None and slow.is_worth_a_trial:
                yield self._warning(slow, fewer)
            elif slow.workers > MANY * slow.most_workers or facts.host.cores_seen > slow.most_workers:
                yield self._info(slow)

    def _warning(self, slow: Slow, fewer: int) -> Finding:
        gain = slow.gain(fewer) or 1.0
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"{slow.workers} workers share {slow.cpus:g} CPUs, {fewer} are {gain:.1f} times as fast; "
                f"training waits for data {percent(slow.pace.wait_share)} of the time"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=_evidence(slow),
            prescription=slow.set_option(
                "num_workers", fewer, expect=f"about {gain:.1f} times the samples/s, and less memory"
            ),
            experiments=(
                Experiment(
                    title=f"num_workers={slow.workers} against num_workers={fewer}",
                    change=Change(settings={"num_workers": fewer}),
                    measure="faster",
                    ratio=WORTH,
                ),
            ),
        )

    def _info(self, slow: Slow) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="info",
            confidence="observed",
            message=f"{slow.workers} workers share {slow.cpus:g} CPUs",
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=_evidence(slow),
            prescription=slow.set_option(
                "num_workers",
                slow.most_workers,
                expect="as fast as now, with less memory and a shorter start",
            ),
        )


def _better(slow: Slow) -> int | None:
    """The number of workers up to the CPUs that was best on the ladder, where it promises a gain."""
    alone = slow.rates.get(0)
    if slow.workers > MANY * slow.most_workers and alone and alone >= WORTH * _best_rate(slow):
        fewer = [0]
    else:
        fewer = [workers for workers in slow.rates if 1 <= workers <= slow.most_workers]
    best = max(fewer, key=lambda workers: slow.rates[workers], default=None)
    part = PLAIN if slow.workers > MANY * slow.most_workers else 1.0
    if best is None or (slow.gain(best) or 0) < PROMISING or not slow.is_noticed(slow.saved_s(best), part):
        return None
    return None if best and slow.rates.get(0, 0.0) >= WORTH * slow.rates[best] else best


def _best_rate(slow: Slow) -> float:
    return max(
        (slow.rates[workers] for workers in slow.rates if 1 <= workers <= slow.most_workers), default=0.0
    )


def _evidence(slow: Slow) -> tuple[Evidence, ...]:
    return (
        Evidence("workers", str(slow.workers), "settings"),
        Evidence("CPUs by affinity and quota", f"{slow.cpus:g}", "host"),
        slow.wait,
        *slow.ladder,
    )
