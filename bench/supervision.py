"""What supervision costs when nothing fails: our loader against itself with supervision switched off.

    python -m bench.supervision                          all works, 30 pairs each
    python -m bench.supervision --work fifty --pairs 100

Off are: the black box (phase, ticket and sample of every worker), the scale (a worker's memory), the watch
over first samples, the books on restarts and suspects, and looks at workers that are quiet. What is left is
the loader that hands batches over and cannot tell what happened when a worker dies.

One pair is two windows with a loader each, one with and one without, in turns first, all in one process. The
table gives the median of the ratios within the pairs and where it lies in 95 of 100 drawings from them.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from bench.measure import ROOT, Checker, CpuGroup, Outcome, Plan, cpu_counter, time_window, write_reference
from bench.peers import PEERS, open_penstock
from bench.work import WORKS

BAR = 3.0  # percent
DRAWINGS = 2000


class NoBox:
    """A black box that nobody reads."""

    pace_ns = 0

    def begin(self, number: int, attempt: int) -> None: ...
    def at(self, position: int, index: Any) -> None: ...
    def phase(self, number: int) -> None: ...
    def end(self) -> None: ...
    def disarm(self) -> None: ...
    def arm(self) -> None: ...


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Keep supervision out of this process and of the workers that it forks meanwhile."""
    from penstock._engine.restart import Restarts
    from penstock._engine.suspect import Suspects
    from penstock._engine.worker import Worker

    born = Worker.__init__

    def bare(self: Worker, *args: Any, **kwargs: Any) -> None:
        born(self, *args, **kwargs)
        self._box, self._scale = NoBox(), None

    with (
        patch.object(Worker, "__init__", bare),
        patch.object(Worker, "_begin_samples", lambda self: None),
        patch.object(Restarts, "answered", lambda self, worker: None),
        patch.object(Suspects, "answered", lambda self, number: None),
    ):
        yield


UNSUPERVISED = {"max_restarts": 0, "stall_warn": None, "stall_timeout": None}


def window(plan: Plan, checker: Checker, cpu_s: Callable[[], float], *, is_on: bool) -> Outcome:
    """One timed window of a loader of its own."""
    out, work = Outcome(), WORKS[plan.work]
    options = {} if is_on else UNSUPERVISED
    with (
        contextlib.nullcontext() if is_on else switched_off(),
        open_penstock(work, plan.workers, **options) as batches,
    ):
        time_window(batches, plan, work, checker, cpu_s, out)
    return out


def cost(pairs: list[tuple[Outcome, Outcome]], field: str) -> list[float]:
    """Percent by which `field` is worse with supervision, pair by pair."""
    found = []
    for on, off in pairs:
        ratio = getattr(on, field) / getattr(off, field)
        found.append((ratio - 1 if field == "cpu_us" else 1 / ratio - 1) * 100)
    return found


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median lies, with 95 % confidence."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(DRAWINGS))
    return medians[DRAWINGS // 40], medians[-DRAWINGS // 40]


def row(name: str, pairs: list[tuple[Outcome, Outcome]]) -> str:
    cells = [f"{name:<14} {len(pairs):>5}"]
    for field in ("rate", "cpu_us"):
        values = cost(pairs, field)
        low, high = interval(values)
        verdict = "met" if high < BAR else "MISSED" if low > BAR else "open"
        cells.append(f"{statistics.median(values):+6.2f} % ({low:+.2f} to {high:+.2f}) {verdict:<6}")
    return "  ".join(cells)


def measure(
    name: str, options: argparse.Namespace, cpu_s: Callable[[], float]
) -> list[tuple[Outcome, Outcome]]:
    """The windows of one work, with supervision and without, in pairs."""
    pairs: list[tuple[Outcome, Outcome]] = []
    with tempfile.TemporaryDirectory() as folder:
        reference = str(Path(folder) / "reference")
        write_reference(name, reference)
        checker = Checker(WORKS[name], PEERS["penstock"], reference)
        plan = Plan(name, "penstock", options.workers, 0.3, options.window)
        for number in range(options.pairs):
            order = (True, False) if number % 2 else (False, True)
            found = {is_on: window(plan, checker, cpu_s, is_on=is_on) for is_on in order}
            pairs.append((found[True], found[False]))
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.supervision",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--window", type=float, default=1.0, help="seconds of one timed window")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    sys.path.append(str(ROOT / "src"))
    print(f"cost of supervision, bar {BAR:g} %   time for a sample              CPU for a sample")
    torch.set_num_threads(1)
    group = CpuGroup.create()
    cpu_s, _ = cpu_counter(None if group is None else str(group.folder))
    try:
        for name in options.work:
            print(row(name, measure(name, options, cpu_s)), flush=True)
    finally:
        if group is not None:
            group.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
