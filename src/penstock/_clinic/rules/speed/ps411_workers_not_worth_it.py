"""PS411 workers-not-worth-it

## What it finds
A loader whose samples cost less to make than a worker costs to hand them over: data in memory, tiny
batches.

## Why it matters
With workers an epoch takes longer than without any.

## How we know
The ladder: samples per second with `num_workers=0` and with the program's own number, each over a whole
epoch. The experiment repeats the comparison. It is a warning only if none were at least 1.5 times as fast,
and a second or more of each epoch is lost.

## What to do
`num_workers=0`, or larger batches.

## When we stay silent
When workers bring a gain, when the loss is less than a second in an epoch, when the program hardly waits,
when starting workers (PS106, PS407), batches of many tensors (PS410), more workers than CPUs (PS406) or new
iterators for each step (PS408) are what costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding
from penstock._clinic.slowness import PROMISING, WORTH, Slow, percent, seconds, slow_loaders
from penstock._lab.plan import Change

# So many workers for each CPU are no choice for such data, but a number without thought (PS406).
VERY_MANY = 2


class WorkersNotWorthIt:
    """No workers at all are faster."""

    code: ClassVar[str] = "PS411"
    cause: ClassVar[str] = "workers-not-worth-it"
    needs: ClassVar[frozenset[str]] = frozenset({"observed", "ladder"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader that was faster without workers."""
        for slow in slow_loaders(facts):
            if slow.workers and slow.is_worth_a_trial and _promises(slow):
                yield self._finding(slow)

    def _finding(self, slow: Slow) -> Finding:
        gain, saved = slow.gain(0) or 1.0, slow.saved_s(0)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"with {slow.workers} workers an epoch takes {seconds(saved)} longer than without: a batch "
                f"takes {seconds(slow.work.batch_s)} to make and {seconds(slow.hand_over_s)} to hand over"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                slow.wait,
                *slow.ladder,
                Evidence("samples in a batch", f"{slow.pace.batch_samples:g}", "observed run"),
                Evidence("share of hand-over in the waiting", percent(slow.hand_over_share), "observed run"),
            ),
            prescription=slow.set_option("num_workers", 0, expect=f"about {gain:.1f} times the samples/s"),
            experiments=(
                Experiment(
                    title=f"num_workers={slow.workers} against num_workers=0",
                    change=Change(settings={"num_workers": 0}),
                    measure="faster",
                    ratio=WORTH,
                ),
            ),
        )


def _promises(slow: Slow) -> bool:
    """Whether the program's own epoch, with its steps, would be shorter without workers."""
    alone = slow.rates.get(0)
    if not alone or (slow.gain(0) or 0.0) < PROMISING or not slow.is_noticed(slow.saved_s(0)):
        return False
    if _are_too_many(slow, alone):
        return False
    seen = slow.pace
    epoch_s = seen.epoch_batches * (seen.batch_samples / alone + seen.batch_step_s)
    running_s = seen.epoch_s - seen.pass_start_s  # what starting costs is another matter: PS106, PS407
    return running_s >= PROMISING * epoch_s and slow.is_noticed(running_s - epoch_s)


def _are_too_many(slow: Slow, alone: float) -> bool:
    """Whether their number is what is wrong: very many, or so many that fewer would do about as well."""
    fewer = [rate for workers, rate in slow.rates.items() if 1 <= workers <= slow.most_workers]
    if slow.workers > VERY_MANY * slow.most_workers:
        return True
    return slow.workers > slow.most_workers and bool(fewer) and alone < WORTH * max(fewer)
