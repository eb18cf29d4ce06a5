"""Growth over batches, told from warm-up and noise. Pure.

    value │        ╭──── warm-up: rises, then flat          value │      ╱  growth: rises to the end
          │  ╭─────╯                                              │   ╱
          └──────────▶ batches                                    └──────────▶ batches

A slope is the median of the slopes of all pairs of points (Theil-Sen), which a few odd points cannot bend;
its interval comes from the ranks of those slopes (Sen). Warm-up (allocators, modules imported late, first
touches) is over early: what counts is the later part of a run, and it must still rise at its very end.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock._lab.record import FetchSeen, Trial, Vitals

Point = tuple[float, float]

FEWEST = 6  # points; below that an interval says nothing
MOST = 160  # points; 12,720 pairs are a few milliseconds
WARM_UP = 0.25  # of the points, at the start, are left out
Z = 1.96  # of the normal distribution: 95 %


@dataclass(frozen=True, slots=True)
class Slope:
    """How fast something grows, and how sure that is."""

    per_step: float
    low: float
    high: float
    first: float  # value where the slope begins, after warm-up
    last: float
    steps: float  # how many steps lie between the two
    points: int = 0

    @property
    def is_rising(self) -> bool:
        """Whether the whole interval lies above zero."""
        return self.low > 0

    @property
    def gained(self) -> float:
        """What it grew over the steps seen."""
        return self.per_step * self.steps

    def after(self, steps: float) -> float:
        """The value after so many more steps, if it goes on."""
        return self.last + self.per_step * steps


FLAT = Slope(per_step=0.0, low=0.0, high=0.0, first=0.0, last=0.0, steps=0.0)


def slope(points: Iterable[Point]) -> Slope:
    """The slope through these points, or `FLAT` when they are too few to tell."""
    line = thinned(sorted(points))
    if len(line) < FEWEST or line[0][0] == line[-1][0]:
        return FLAT
    rises = sorted(
        (later[1] - sooner[1]) / (later[0] - sooner[0])
        for place, sooner in enumerate(line)
        for later in line[place + 1 :]
        if later[0] > sooner[0]
    )
    spread = _spread(len(line))
    return Slope(
        per_step=statistics.median(rises),
        low=rises[max(0, math.floor((len(rises) - spread) / 2))],
        high=rises[min(len(rises) - 1, math.ceil((len(rises) + spread) / 2))],
        first=line[0][1],
        last=line[-1][1],
        steps=line[-1][0] - line[0][0],
        points=len(line),
    )


def _spread(count: int) -> float:
    """How many ranks of the pairs' slopes lie within the interval."""
    return Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def thinned(line: Sequence[Point], most: int = MOST) -> Sequence[Point]:
    """At most so many of these points, evenly, the last among them."""
    if len(line) <= most:
        return line
    return [line[round(place * (len(line) - 1) / (most - 1))] for place in range(most)]


def growth(points: Iterable[Point]) -> Slope:
    """The slope after warm-up, or `FLAT` when it has stopped rising by the end."""
    line = sorted(points)
    later = line[int(len(line) * WARM_UP) :]
    found = slope(later)
    if not found.is_rising or not still_rises(later, found):
        return FLAT
    return found


def still_rises(line: Sequence[Point], whole: Slope) -> bool:
    """Whether the later half rises at least a third as fast as the whole: what has levelled off does not."""
    last = line[len(line) // 2 :]
    rises = [
        (later[1] - sooner[1]) / (later[0] - sooner[0])
        for place, sooner in enumerate(last)
        for later in last[place + 1 :]
        if later[0] > sooner[0]
    ]
    return bool(rises) and statistics.median(rises) >= whole.per_step / 3


# ---- what is followed ---------------------------------------------------------------------------


def of_vitals(vitals: Iterable[Vitals], name: str) -> Slope:
    """Growth of one vital sign over delivered batches: "main_fds", "main_maps", "shm_used" …"""
    return growth((float(seen.batches), float(getattr(seen, name))) for seen in vitals if seen.batches)


def of_workers(trial: Trial, key: str, name: str = "uss") -> tuple[Slope, float]:
    """Growth in a worker of a loader over the samples that it made, and what all have gained together.

    Workers are alike: each one's points count from where it was after its own warm-up.
    """
    points: list[Point] = []
    gained = 0.0
    for line in lines(trial, key, name).values():
        later = line[int(len(line) * WARM_UP) :]
        points += [(samples - later[0][0], value - later[0][1]) for samples, value in later]
        gained += later[-1][1] - later[0][1]
    points.sort()
    found = slope(points)
    if not found.is_rising or not still_rises(points, found):
        return FLAT, 0.0
    return found, gained


def lines(trial: Trial, key: str, name: str = "uss") -> dict[int, list[Point]]:
    """By pid: (samples made so far, value) after each batch of a worker."""
    made: dict[int, dict[int, int]] = defaultdict(dict)  # by pid and pass
    found: dict[int, list[Point]] = defaultdict(list)
    for fetch in sorted(fetches(trial, key), key=lambda seen: seen.began_s):
        passes = made[fetch.pid]
        passes[fetch.iterator] = fetch.made or passes.get(fetch.iterator, 0) + max(1, len(fetch.indices))
        value = getattr(fetch, name)
        if value:
            found[fetch.pid].append((float(sum(passes.values())), float(value)))
    return dict(found)


def fetches(trial: Trial, key: str) -> list[FetchSeen]:
    """The batches that workers of one loader made."""
    return [seen for seen in trial.fetches if seen.loader == key and seen.worker >= 0]
