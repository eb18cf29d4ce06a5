"""PS410 many-small-tensors

## What it finds
Batches of very many tensors, each of which torch hands over by itself.

## Why it matters
Every tensor costs a file, a mapping and a descriptor sent over a socket: a tenth of a millisecond to two
milliseconds, however small it is.

## How we know
Tensors in a batch, and what a batch waits beyond the time that workers need to make it. The experiment
hands over the same batches with their tensors packed. It is a warning only if that was at least 1.5 times
as fast.

## What to do
Let collate stack or concatenate fields into a few tensors, or use a loader that hands over a batch in one
piece: `from penstock import DataLoader`.

## When we stay silent
When the program hardly waits (between five percent and a third of its time it is an info), when batches
have few tensors, when making them is what takes the time, without workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.slowness import WORTH, Slow, percent, seconds, slow_loaders, weighed
from penstock._lab.plan import Change

# Below this many the hand-over of a batch is a few milliseconds.
MANY = 32
# More of the waiting than this must be hand-over.
MOSTLY = 0.4


class ManySmallTensors:
    """Batches of so many tensors that their hand-over takes the time."""

    code: ClassVar[str] = "PS410"
    cause: ClassVar[str] = "many-small-tensors"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader with many tensors in a batch."""
        for slow in slow_loaders(facts):
            tensors = max((seen.tensors_per_batch for seen in facts.passes(slow.loader.key)), default=0)
            if tensors >= MANY and slow.is_worth_a_word and slow.hands_over(MOSTLY):
                yield weighed(self._finding(slow, tensors), slow)

    def _finding(self, slow: Slow, tensors: int) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"a batch has {tensors} tensors: their hand-over takes {seconds(slow.hand_over_s)} of the "
                f"{seconds(slow.pace.batch_wait_s)} that training waits for it"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("tensors in a batch", str(tensors), "observed run"),
                Evidence("hand-over of a tensor", seconds(slow.hand_over_s / tensors), "observed run"),
                Evidence("share of hand-over in the waiting", percent(slow.hand_over_share), "observed run"),
                *slow.ladder,
            ),
            prescription=Prescription(
                change="stack or concatenate fields in collate_fn, so that a batch has a few tensors",
                expect="a batch is handed over in one piece",
                fix=Fix("pack-fields", slow.loader.site, {"loader": slow.loader.name}),
            ),
            experiments=(
                Experiment(
                    title="the same batches with their tensors packed",
                    change=Change(mends=("pack-tensors",)),
                    measure="faster",
                    ratio=WORTH,
                ),
                Experiment(
                    title="our loader in place, which hands over a batch in one piece",
                    change=Change(use_penstock=True),
                    measure="faster",
                    ratio=WORTH,
                ),
            ),
        )
