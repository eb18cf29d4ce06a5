"""PS412 large-python-objects

## What it finds
Batches that carry large Python objects: lists of numbers, dictionaries, strings, NumPy arrays that collate
left alone.

## Why it matters
Tensors travel in shared memory. All else is pickled in the worker, pushed through a pipe and built again in
the consumer, object by object, on the training thread.

## How we know
Bytes of a batch that are pickled, and what a batch waits beyond the time that workers need to make it. The
experiment runs the same loader without a pipe: without workers, or with batches that are made and not sent.
It is a warning only if that was at least 1.5 times as fast.

## What to do
Return tensors, or stack them in collate.

## When we stay silent
When the program hardly waits (between five percent and a third of its time it is an info), when little is
pickled, when making batches is what takes the time, without workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.amounts import size
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.slowness import PROMISING, WORTH, Slow, percent, seconds, slow_loaders, weighed
from penstock._lab.plan import Change

# Pickling and building again go at some 50 MB/s for lists of numbers: less than this is a few milliseconds.
LARGE_NBYTES = 256 << 10
# Both ends together; on a busy machine they take the time of those who make samples, not of the hand-over.
PICKLED_PER_S = 25e6
# More of the waiting than this must be hand-over.
MOSTLY = 0.3


class LargePythonObjects:
    """What is no tensor goes through a pipe, object by object."""

    code: ClassVar[str] = "PS412"
    cause: ClassVar[str] = "large-python-objects"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose batches are largely pickled."""
        for slow in slow_loaders(facts):
            nbytes = max((seen.pickled_nbytes for seen in facts.passes(slow.loader.key)), default=0)
            if nbytes >= LARGE_NBYTES and slow.is_worth_a_word and _takes_time(slow, nbytes):
                yield weighed(self._finding(slow, nbytes), slow)

    def _finding(self, slow: Slow, nbytes: int) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"{size(nbytes)} of each batch are Python objects that go through a pipe: about "
                f"{seconds(max(slow.hand_over_s, nbytes / PICKLED_PER_S))} of work, and training waits "
                f"{seconds(slow.pace.batch_wait_s)} for a batch"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                Evidence("pickled in a batch", size(nbytes), "observed run"),
                Evidence("share of hand-over in the waiting", percent(slow.hand_over_share), "observed run"),
                *slow.ladder,
            ),
            prescription=Prescription(
                change="return tensors from the dataset (torch.as_tensor), or stack them in collate_fn",
                expect="batches travel in shared memory",
            ),
            experiments=tuple(_experiments(slow)),
        )


def _takes_time(slow: Slow, nbytes: int) -> bool:
    pickled_s = nbytes / PICKLED_PER_S
    return slow.hands_over(MOSTLY) or (slow.workers > 0 and pickled_s >= MOSTLY * slow.pace.batch_wait_s)


def _experiments(slow: Slow) -> Iterator[Experiment]:
    # Without workers there is no pipe; but one process makes all, and what that costs may hide the gain.
    if (slow.gain(0) or 0.0) >= PROMISING:
        yield Experiment(
            title="the same objects without a pipe (num_workers=0)",
            change=Change(settings={"num_workers": 0}),
            measure="faster",
            ratio=WORTH,
        )
    yield Experiment(
        title="the same loader, its batches made but not sent",
        change=Change(mends=("unsent-batches",)),
        measure="faster",
        ratio=WORTH,
    )
