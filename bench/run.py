"""Run the contenders against each other and print one table per work.

Trials are interleaved, A B C A B C …, so that a machine that slows down slows everybody. The
ratio to stock torch is taken within each round; the table shows the median of the rounds and in
brackets the smallest and the largest. Before the first round each contender loads one whole
period that is checked sample by sample; a contender with wrong content is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Outcome, Plan, call, start_trial
from bench.peers import PEERS, Peer
from bench.work import WORKS, Work

BASE = "torch"
LIMIT = "raw"
OURS = ("penstock", "penstock-auto")
OPT_IN = ("penstock-thread",)
WIDTH = 100

Rounds = dict[str, list[Outcome]]


def ratios(rounds: Rounds, name: str, value: Callable[[Outcome, Outcome], float]) -> list[float]:
    """Return `value(contender, torch)` of each round in which both succeeded."""
    pairs = zip(rounds.get(name, []), rounds.get(BASE, []), strict=False)
    return [value(mine, stock) for mine, stock in pairs if mine.ok and stock.ok]


def rate_ratio(mine: Outcome, other: Outcome) -> float:
    return mine.rate / other.rate


def cpu_ratio(mine: Outcome, stock: Outcome) -> float:
    return stock.cpu_us / mine.cpu_us


def of_raw(rounds: Rounds, name: str) -> float | None:
    pairs = zip(rounds.get(name, []), rounds.get(LIMIT, []), strict=False)
    shares = [mine.rate / raw.rate for mine, raw in pairs if mine.ok and raw.ok]
    return statistics.median(shares) if shares else None


def spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def median_of(outcomes: list[Outcome], field: str) -> float:
    return statistics.median(getattr(outcome, field) for outcome in outcomes)


class Race:
    """All contenders on one work."""

    def __init__(self, work: Work, peers: list[Peer], options: argparse.Namespace) -> None:
        self.work = work
        self.peers = peers
        self.options = options
        self.rounds: Rounds = {}
        self.problems: dict[str, str] = {}
        self.checked: dict[str, str] = {}

    def run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            reference = str(Path(folder) / "reference.json")
            values = {"work_name": self.work.name, "file": reference}
            _, problem = call("reference", values, 120)
            if problem:
                raise RuntimeError(f"no reference for {self.work.name}: {problem}")
            able = [peer for peer in self.peers if self._verify(peer, reference)]
            for number in range(self.options.rounds):
                for peer in able:
                    self._time(peer, reference, number)

    def _plan(self, peer: Peer, reference: str, verify: bool = False) -> Plan:
        return Plan(
            work=self.work.name,
            peer=peer.name,
            workers=self.options.workers,
            warm_s=0.4 if self.options.quick else 1.0,
            window_s=1.0 if self.options.quick else 3.0,
            reference=reference,
            verify=verify,
        )

    def _verify(self, peer: Peer, reference: str) -> bool:
        if not peer.is_installed:
            self.problems[peer.name] = "not installed"
        elif not peer.can(self.work):
            self.problems[peer.name] = "not for this work"
        elif peer.delivers:
            say(f"{self.work.name}: {peer.name}, every sample checked")
            outcome = start_trial(self._plan(peer, reference, verify=True), self.options.timeout)
            self.checked[peer.name] = outcome.checked
            if not outcome.ok:
                self.problems[peer.name] = outcome.problem
        return peer.name not in self.problems

    def _time(self, peer: Peer, reference: str, number: int) -> None:
        say(f"{self.work.name}: {peer.name}, round {number + 1} of {self.options.rounds}")
        outcome = start_trial(self._plan(peer, reference), self.options.timeout)
        self.rounds.setdefault(peer.name, []).append(outcome)
        if not outcome.ok:
            self.problems[peer.name] = f"round {number + 1}: {outcome.problem}"

    def table(self) -> str:
        """Return the results as text."""
        good = [outcome for outcomes in self.rounds.values() for outcome in outcomes if outcome.ok]
        lines = [
            "",
            f"{self.work.name}: {self.work.title}",
            f"{'':16}{'samples':>9}{'CPU us':>9}  {'rate against':<20}{'CPU less':<20}{'of':>5}{'first':>8}",
            f"{'contender':16}{'per s':>9}{'/sample':>9}  {'torch, spread':<20}"
            f"{'than torch':<20}{'raw':>5}{'batch s':>8}  checked",
            "-" * WIDTH,
        ]
        lines += [self._row(peer) for peer in self.peers]
        lines.append("-" * WIDTH)
        lines += [line for name in OURS for line in self._bars(name)]
        if good:
            others = statistics.median(outcome.others for outcome in good)
            if others > 0.05:
                lines.append(f"note: other programs used {others:.0%} of the machine")
            if any(outcome.cpu_from != "cgroup" for outcome in good):
                lines.append("note: no control group could be made, CPU is read from /proc")
        return "\n".join(lines)

    def _row(self, peer: Peer) -> str:
        good = [outcome for outcome in self.rounds.get(peer.name, []) if outcome.ok]
        problem = self.problems.get(peer.name, "")
        if not good:
            return f"{peer.name:16}  {problem}"[:WIDTH]
        share = of_raw(self.rounds, peer.name)
        row = (
            f"{peer.name:16}{median_of(good, 'rate'):>9,.0f}{median_of(good, 'cpu_us'):>9,.1f}  "
            f"{spread(ratios(self.rounds, peer.name, rate_ratio)):<20}"
            f"{spread(ratios(self.rounds, peer.name, cpu_ratio)):<20}"
            f"{'-' if share is None else f'{share:.0%}':>5}"
            f"{median_of(good, 'first_s'):>8.2f}  {self.checked.get(peer.name, '')}"
        )
        return f"{row}\n{'':16}  {problem}"[: 2 * WIDTH] if problem else row

    def _bars(self, name: str) -> list[str]:
        rate = ratios(self.rounds, name, rate_ratio)
        cpu = ratios(self.rounds, name, cpu_ratio)
        if not rate:
            return []
        bar = self.work.bar
        parts = [
            judge("rate", statistics.median(rate), bar.rate, "x"),
            judge("CPU", statistics.median(cpu), bar.cpu, "x less"),
        ]
        share = of_raw(self.rounds, name)
        if bar.of_raw is not None and share is not None:
            parts.append(judge("of raw", share * 100, bar.of_raw * 100, "%"))
        return [f"bar {name}: " + "; ".join(parts)]

    def record(self) -> dict[str, Any]:
        """Return everything measured, for a file."""
        return {
            "work": self.work.name,
            "bar": asdict(self.work.bar),
            "problems": self.problems,
            "checked": self.checked,
            "rounds": {
                name: [asdict(outcome) for outcome in outcomes] for name, outcomes in self.rounds.items()
            },
        }


def judge(what: str, value: float, bar: float, unit: str) -> str:
    """Return one comparison with a bar as text."""
    digits = 0 if unit == "%" else 2
    verdict = "met" if value >= bar else "MISSED"
    return f"{what} {value:.{digits}f}{unit}, bar {bar:g}{unit}: {verdict}"


def say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def versions() -> str:
    from importlib import metadata

    found = []
    for name in ("torch", "penstock", "spdl-core", "grain", "torchdata", "litdata", "webdataset"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def parse() -> argparse.Namespace:
    default = [name for name in PEERS if name not in OPT_IN]
    parser = argparse.ArgumentParser(
        prog="python -m bench.run",
        description=__doc__,
        epilog="works: " + ", ".join(WORKS) + "; peers: " + ", ".join(PEERS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=default)
    parser.add_argument("--rounds", type=int, default=None, help="5, or 2 with --quick")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="windows of 1 s instead of 3 s")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one trial")
    parser.add_argument("--json", type=Path, help="write every trial to this file")
    options = parser.parse_args()
    if options.rounds is None:
        options.rounds = 2 if options.quick else 5
    return options


def main() -> int:
    options = parse()
    # Ended from outside, still take the running trial and its control group along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.path.append(str(ROOT / "src"))  # ours may run without being installed, as in the trials
    # The ratios need the one, and the share of the limit the other.
    names = [name for name in PEERS if name in {*options.peers, BASE, LIMIT}]
    print(
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, {versions()}\n"
        f"{options.workers} workers, {options.rounds} rounds, interleaved; "
        "median (smallest-largest) of the ratios within a round"
    )
    records = []
    for name in options.work:
        started = time.monotonic()
        race = Race(WORKS[name], [PEERS[peer] for peer in names], options)
        race.run()
        say("")
        print(race.table())
        print(f"({time.monotonic() - started:.0f} s)", flush=True)
        records.append(race.record())
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(records, indent=1))
    wrong = [
        f"{record['work']}/{name}: {record['problems'][name]}"
        for record in records
        for name in OURS
        if record["problems"].get(name, "not installed") != "not installed"
    ]
    for line in wrong:
        print(f"PROBLEM {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
