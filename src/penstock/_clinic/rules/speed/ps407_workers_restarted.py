"""PS407 workers-restarted

## What it finds
A loader whose workers are started anew in every epoch, where that takes a large part of the epoch.

## Why it matters
Each epoch begins with a pause: processes start, open their files, fill their caches, and training waits.

## How we know
The time until the first batch of each pass, beyond what a batch takes later. The experiment runs several
epochs with `persistent_workers=True`. It is a warning only if that was at least 1.5 times as fast.

## What to do
`persistent_workers=True`.

## When we stay silent
When there were one or two epochs, when workers persist already, when the pause is a small part of the epoch
or short, when the program makes a new iterator for each step (PS408).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding
from penstock._clinic.slowness import WORTH, WORTH_SHARE, Slow, percent, seconds, slow_loaders
from penstock._lab.plan import Change

# Passes of the experiment, at least and at most: the first must start workers in any case, and the more the
# program itself makes, the less that counts.
EPOCHS, MOST_EPOCHS = 4, 12
# A program with an epoch or two pays the price of a start once or twice, and nobody minds.
AGAIN, LOST_S = 3, 6.0
# A program that takes so few batches from an iterator, and leaves it, does not go through epochs.
FEW = 4


class WorkersRestarted:
    """Workers start anew in each epoch, and training waits for that."""

    code: ClassVar[str] = "PS407"
    cause: ClassVar[str] = "workers-restarted"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose passes are mostly start."""
        for slow in slow_loaders(facts):
            if _restarts(slow) and _matters(slow):
                yield self._finding(slow)

    def _finding(self, slow: Slow) -> Finding:
        seen = slow.pace
        epochs = max(EPOCHS, min(seen.passes, MOST_EPOCHS))
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"each epoch starts {slow.workers} workers anew: {seconds(seen.pass_start_s)} of "
                f"{seconds(seen.epoch_s)}, {percent(seen.pass_start_s / seen.epoch_s)} of the epoch"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                Evidence("passes", str(seen.passes), "observed run"),
                Evidence("until the first batch", seconds(seen.pass_start_s), "observed run"),
                Evidence("persistent_workers", "False", "settings"),
            ),
            prescription=slow.set_option(
                "persistent_workers", new=True, expect="only the first epoch waits for workers to start"
            ),
            experiments=(
                Experiment(
                    title=f"{epochs} epochs with persistent_workers=True",
                    change=Change(settings={"persistent_workers": True}),
                    measure="faster",
                    ratio=WORTH,
                    epochs=epochs,
                ),
            ),
        )


def _restarts(slow: Slow) -> bool:
    seen = slow.pace
    if not slow.workers or slow.loader.settings.get("persistent_workers"):
        return False
    is_again = seen.passes >= AGAIN or (seen.passes > 1 and seen.start_s >= LOST_S)
    left = sum(each.end == "dropped" and each.batches <= FEW for each in slow.passes)
    return is_again and left <= seen.passes // 2


def _matters(slow: Slow) -> bool:
    seen = slow.pace
    saved_s = seen.pass_start_s * (seen.passes - 1)
    return (
        saved_s >= slow.worth_s
        and slow.matters(seen.start_s)
        and seen.pass_start_s >= WORTH_SHARE * seen.epoch_s
    )
