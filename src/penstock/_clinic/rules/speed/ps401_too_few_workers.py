"""PS401 too-few-workers

## What it finds
A program that waits for data although the machine has CPUs without work, and whose loader has fewer workers
than CPUs.

## Why it matters
Batches that could be made side by side, or while the training step runs, are made one after another.

## How we know
The observed run tells how long the program waits and what a batch takes to make; the experiment runs the
same loader with more workers. It is a warning only if that was at least 1.5 times as fast.

## What to do
Raise `num_workers` to the number in the prescription.

## When we stay silent
When the program hardly waits, when an epoch waits less than a second, when every CPU is used already, when
there is a worker for every CPU (see PS402 and PS403), when a lock serialises the workers (PS409), and for
an iterable dataset at `num_workers=0`, which more workers might repeat (PS301).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding
from penstock._clinic.slowness import (
    HAND_OVER_S,
    PROMISING,
    START_S,
    WORTH,
    Slow,
    percent,
    seconds,
    slow_loaders,
)
from penstock._lab.plan import Change

# Less than this without work is what the system and the consumer's own threads need anyway.
ROOM = 0.4
# Workers that wait for storage more than they compute can be more than the CPUs.
PER_CPU_WHEN_WAITING = 2


class TooFewWorkers:
    """The program waits while CPUs have no work."""

    code: ClassVar[str] = "PS401"
    cause: ClassVar[str] = "too-few-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader with room for more workers that promises a gain."""
        for slow in slow_loaders(facts):
            if slow.is_worth_a_trial and _has_room(slow) and _promise(slow, _wanted(slow)) >= PROMISING:
                yield self._finding(slow, _wanted(slow))

    def _finding(self, slow: Slow, wanted: int) -> Finding:
        idle = "" if slow.idle_cpus is None else f" while {slow.idle_cpus:.1f} of {slow.cpus:g} CPUs are idle"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="suspected",
            message=f"training waits for data {percent(slow.pace.wait_share)} of the time{idle}",
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("workers", f"{slow.workers} on {slow.cpus:g} CPUs", "settings"),
                Evidence("to make a batch", seconds(slow.work.batch_s), "observed run"),
                *slow.ladder,
            ),
            prescription=slow.set_option(
                "num_workers", wanted, expect="batches are made side by side, and while training runs"
            ),
            experiments=(
                Experiment(
                    title=f"num_workers={slow.workers} against num_workers={wanted}",
                    change=Change(settings={"num_workers": wanted}),
                    measure="faster",
                    ratio=WORTH,
                ),
            ),
        )


def _has_room(slow: Slow) -> bool:
    if slow.workers >= int(slow.cpus) or slow.lock is not None:
        return False
    if slow.loader.dataset.is_iterable and not slow.workers:
        return False
    return slow.idle_cpus is None or slow.idle_cpus >= ROOM


def _wanted(slow: Slow) -> int:
    factor = PER_CPU_WHEN_WAITING if slow.waits else 1
    return max(slow.workers + 1, factor * int(slow.cpus))


def _promise(slow: Slow, wanted: int) -> float:
    """How much shorter an epoch of batches alone would be."""
    measured = slow.gain(wanted)
    if measured is not None:
        return measured
    side_by_side = wanted if slow.waits else min(wanted, slow.cpus)
    batches, batch_s = slow.pace.epoch_batches, slow.work.batch_s
    now = batches * batch_s / max(1, slow.workers)
    return now / max(1e-9, START_S + batches * (batch_s / side_by_side + HAND_OVER_S))
