"""PS407 workers-restarted

## What it finds
A loader whose workers are started anew in every epoch, or that is itself made anew for each epoch, stage or
fold, where the start of workers takes a large part of the time.

## Why it matters
Each epoch begins with a pause: processes start, open their files, fill their caches, and training waits.

## How we know
The time until the first batch of each pass, beyond what a batch takes later. The experiment runs several
epochs with `persistent_workers=True`. It is a warning only if that was at least 1.5 times as fast.

## What to do
`persistent_workers=True`; and make the loader once, before the loop: a new one starts new workers.

## When we stay silent
When there was one epoch (two are worth a remark), when workers persist and their loader does too, when the
pause is a small part of the epoch or short, when the program makes a new iterator for each step (PS408).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Prescription
from penstock._clinic.slowness import WORTH, WORTH_SHARE, Slow, percent, seconds, slow_loaders
from penstock._lab.plan import Change

# Passes of the experiment, at least and at most: the first must start workers in any case, and the more the
# program itself makes, the less that counts.
EPOCHS, MOST_EPOCHS = 4, 12
# A program with two epochs pays the price of a start twice, and nobody minds: it is only told.
AGAIN, LOST_S = 3, 6.0
# A program that takes so few batches from an iterator, and leaves it, does not go through epochs.
FEW = 4


_EXPECT = "only the first epoch waits for workers to start"
_ONCE = Prescription(
    change="make the loader once, before the loop, with persistent_workers=True; "
    "what changes from one to the next belongs in its sampler",
    expect=_EXPECT,
)


class WorkersRestarted:
    """Workers start anew in each epoch, and training waits for that."""

    code: ClassVar[str] = "PS407"
    cause: ClassVar[str] = "workers-restarted"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose passes are mostly start."""
        lines: dict[str, list[Slow]] = {}
        for slow in slow_loaders(facts):
            if _restarts(slow) and _is_mostly_start(slow):
                lines.setdefault(slow.loader.key.rpartition("#")[0], []).append(slow)
        for alike in lines.values():
            # Loaders that one line makes for several parts of the data are used in turn: one pays for all.
            told = [slow for slow in alike if _matters([slow])] or (alike[:1] if _matters(alike) else [])
            for slow in told:
                finding = self._finding(slow, made=_made(facts, slow))
                yield finding if _often(slow) else dataclasses.replace(finding, severity="info")

    def _finding(self, slow: Slow, *, made: int) -> Finding:
        seen = slow.pace
        epochs = max(EPOCHS, min(seen.passes, MOST_EPOCHS))
        is_kept = _is_kept(slow)
        # Workers that are kept go with the loader that has them.
        is_remade = made >= AGAIN and (is_kept or made > seen.passes // 2)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            confidence="observed",
            message=(
                f"each {'new loader' if is_remade else 'epoch'} starts {slow.workers} workers anew: "
                f"{seconds(seen.pass_start_s)} of {seconds(seen.epoch_s)}, "
                f"{percent(seen.pass_start_s / seen.epoch_s)} of {'a pass' if is_remade else 'the epoch'}"
            ),
            where=slow.loader.site,
            loader=slow.loader.key,
            evidence=(
                Evidence("passes", str(seen.passes), "observed run"),
                Evidence("until the first batch", seconds(seen.pass_start_s), "observed run"),
                Evidence("persistent_workers", str(is_kept), "settings"),
                *((Evidence("loaders that this line made", str(made), "observed run"),) if is_remade else ()),
            ),
            prescription=_ONCE
            if is_remade
            else slow.set_option("persistent_workers", new=True, expect=_EXPECT),
            experiments=(
                Experiment(
                    title=f"{epochs} epochs with persistent_workers=True",
                    change=Change(settings={"persistent_workers": True}),
                    base=Change(settings={"persistent_workers": False}) if is_kept else Change(),
                    measure="faster",
                    ratio=WORTH,
                    epochs=epochs,
                ),
            ),
        )


def _restarts(slow: Slow) -> bool:
    seen = slow.pace
    if not slow.workers:
        return False
    left = sum(each.end == "dropped" and each.batches <= FEW for each in slow.passes)
    return _starts(slow) > 1 and left <= seen.passes // 2


def _often(slow: Slow) -> bool:
    return _starts(slow) >= AGAIN or slow.pace.start_s >= LOST_S


def _starts(slow: Slow) -> int:
    return slow.crews if _is_kept(slow) else slow.pace.passes


def _is_kept(slow: Slow) -> bool:
    return bool(slow.loader.settings.get("persistent_workers"))


def _made(facts: Facts, slow: Slow) -> int:
    """How many loaders its line has made, of those that were used."""
    line = slow.loader.key.rpartition("#")[0]
    used = {each.loader for each in facts.observed.iterators} if facts.observed else set()
    return sum(key.rpartition("#")[0] == line for key in used)


def _is_mostly_start(slow: Slow) -> bool:
    return slow.pace.pass_start_s >= WORTH_SHARE * slow.pace.epoch_s


def _matters(alike: list[Slow]) -> bool:
    """Whether the starts of these loaders, of one line, are a part of the program that one notices."""
    saved_s = sum(slow.pace.pass_start_s * (slow.pace.passes - 1) for slow in alike)
    return saved_s >= alike[0].worth_s and alike[0].matters(sum(slow.pace.start_s for slow in alike))
