"""Charts as numbers for inline SVG: where each bar and each point stands. Pure; the template draws them.

Lengths along the page are shares of its width, so that a chart fits a phone without shrinking its letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock._clinic.report import Rung
from penstock._render import words

ROW = 42  # pixels: the words of a rung, and its bar below them
SHORTEST = 0.6  # per cent of the width: a bar that says "nothing came" can still be seen
LONGEST_DETAIL = 90  # characters beside a bar; the table has the whole
CURVE = 140  # pixels: height of the curve
MOST_POINTS = 500  # of a curve
OUTCOMES = frozenset({"ok", "error", "hang", "crash", "oom"})


@dataclass(frozen=True, slots=True)
class Bar:
    """One rung of the ladder."""

    y: int
    length: float  # per cent of the width
    label: str
    value: str
    outcome: str  # ok, error, hang, crash, oom; "other" when unknown
    detail: str


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs of one loader."""

    title: str
    height: int
    bars: tuple[Bar, ...]


def ladder(title: str, rungs: Sequence[Rung]) -> Ladder:
    """The bars of one loader: samples per second by number of workers."""
    fastest = max((rung.samples_per_s or 0.0 for rung in rungs), default=0.0)
    bars = tuple(_bar(place, rung, fastest) for place, rung in enumerate(rungs))
    return Ladder(title, ROW * len(bars), bars)


def _bar(place: int, rung: Rung, fastest: float) -> Bar:
    rate = rung.samples_per_s
    share = 100 * (rate or 0.0) / fastest if fastest else 0.0
    measured = "" if rate is None else f", {words.number(rate)} samples/s"
    return Bar(
        y=ROW * place,
        length=round(max(SHORTEST, share), 1),
        label=words.counted(rung.num_workers, "worker"),
        value=words.plain(rung.outcome, limit=12) + measured,
        outcome=rung.outcome if rung.outcome in OUTCOMES else "other",
        detail="" if rung.detail == rung.outcome else words.plain(rung.detail, limit=LONGEST_DETAIL),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory over time, in a square of 100 by 100 that the page stretches."""

    line: str  # points of a polyline
    area: str
    height: int
    most: str
    took: str
    summary: str


def curve(points: Sequence[tuple[float, int]]) -> Curve | None:
    """The line of a series of (seconds, bytes); None when there is nothing to draw."""
    values = [nbytes for _, nbytes in points]
    took = points[-1][0] - points[0][0] if points else 0.0
    if took <= 0 or max(values) <= 0:
        return None
    most = max(values)
    places = [
        (100 * (at - points[0][0]) / took, 100 * (1 - nbytes / most)) for at, nbytes in _thinned(points)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return Curve(
        line=line,
        area=f"0,100 {line} 100,100",
        height=CURVE,
        most=words.size(most),
        took=words.seconds(took),
        summary=f"from {words.size(values[0])} to {words.size(values[-1])}, at most {words.size(most)}",
    )


def _thinned(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """As many points as can be told apart; of each group the highest, so that no peak is lost."""
    group = -(-len(points) // MOST_POINTS)
    groups = [points[start : start + group] for start in range(0, len(points), group)]
    highest = [max(each, key=lambda point: point[1]) for each in groups]
    return [points[0], *highest[1:-1], points[-1]] if group > 1 else list(points)
