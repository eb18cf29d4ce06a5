"""PS815 uneven-ranks

## What it finds
A training over several ranks in which one rank has fewer batches than another: the one with more waits in a
collective operation (`all_reduce`, the backward pass of DDP, `barrier`) for a rank that has left the loop.

## Why it matters
The job freezes until the watchdog of NCCL or the time-out of gloo ends it, at the end of an epoch, with a
message about the network.

## How we know
Batches of each rank in the same pass, and either the stack of a rank that is stuck in `torch.distributed`
or the failure of a collective. The experiment ends every rank's pass after as many batches as the shortest
has.

## What to do
Give every rank the same number of batches: `DistributedSampler` with `drop_last=True`, an iterable dataset
cut to the shortest shard, or `with join([model]):` of `torch.distributed.algorithms`.

## When we stay silent
When ranks have equally many batches, when no collective failed or hangs (a program that uses `join` is
well), when a rank stopped for a reason of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock._clinic import hang
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

# What gloo, NCCL and the store say when a peer is gone or does not come.
COLLECTIVE = re.compile(
    r"Timed out waiting \d+ ?ms for \w+ operation|Connection closed by peer|Watchdog caught collective"
    r"|gloo/transport|\bDistBackendError\b|NCCL (?:error|timeout)|monitoredBarrier"
    r"|Application timeout caused pair"
    r"|Socket Timeout|wait timeout after \d+ ?ms|Broken pipe.*(?:gloo|TCPStore)"
)


@dataclass(frozen=True, slots=True)
class _Uneven:
    loader: str
    number: int
    batches: dict[str, int]  # by rank
    pass_: IteratorSeen  # of the rank that has most


class UnevenRanks:
    """One rank has fewer batches, and another waits for it in a collective."""

    code: ClassVar[str] = "PS815"
    cause: ClassVar[str] = "uneven-ranks"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when ranks are uneven and a collective suffers from it."""
        trial = facts.observed
        if trial is None:
            return
        sign = _sign(trial)
        found = next(_uneven(trial), None) if sign is not None else None
        if sign is not None and found is not None:
            yield self._finding(trial, found, sign)

    def _finding(self, trial: Trial, found: _Uneven, sign: Evidence) -> Finding:
        loader = trial.loader(found.loader)
        fewest = min(found.batches.values())
        short = next(rank for rank, batches in found.batches.items() if batches == fewest)
        long = max(found.batches, key=lambda rank: found.batches[rank])
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            confidence="observed",
            message=(
                f"{short} has {fewest} batches where {long} has {found.batches[long]}, and {long} waits for "
                "it in a collective operation"
            ),
            where=loader.site if loader else None,
            loader=found.loader,
            evidence=(
                Evidence(
                    "batches by rank",
                    ", ".join(f"{rank}: {batches}" for rank, batches in sorted(found.batches.items())),
                    "observed run",
                ),
                sign,
            ),
            prescription=Prescription(
                change="give every rank equally many batches: DistributedSampler(..., drop_last=True), "
                "or wrap the loop in torch.distributed.algorithms.Join",
                expect=f"every rank ends after {fewest} batches",
                fix=Fix(
                    "drop-last", loader.site if loader else None, {"loader": loader.name if loader else ""}
                ),
            ),
            experiments=(
                Experiment(
                    title=f"every rank ends its pass after {fewest} batches",
                    change=Change(mends=("equal-ranks",), env={"PENSTOCK_MOST_BATCHES": str(fewest)}),
                    measure="gone",
                    drive="script",
                ),
            ),
            stopped_at_s=_stopped(trial, found),
        )


def _sign(trial: Trial) -> Evidence | None:
    """What shows that a collective suffers: a stack, or what somebody said."""
    judged = hang.judge(trial)
    if judged is not None and judged.signature == "other-rank":
        return Evidence("stuck in", "a collective operation of torch.distributed", "stacks")
    for failure in trial.failures:
        if COLLECTIVE.search(f"{failure.text}\n{failure.traceback}"):
            return Evidence("failure", f"{failure.type}: {_line(failure.text)}", "observed run")
    for text in (trial.stderr, trial.stdout):
        found = COLLECTIVE.search(text)
        if found is not None:
            return Evidence("failure", found.group(0), "standard error")
    return None


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:160] if lines else ""


def _uneven(trial: Trial) -> Iterator[_Uneven]:
    """Passes in which one rank came to its end with fewer batches than another had or will have."""
    ranks = {seen.pid: seen for seen in trial.loaders}
    groups: dict[tuple[str, int], dict[int, IteratorSeen]] = {}
    for seen in trial.iterators:
        groups.setdefault((seen.loader, seen.number), {})[seen.pid] = seen
    for (loader, number), passes in groups.items():
        batches = {_rank(trial, pid, ranks): _batches(trial, each) for pid, each in passes.items()}
        ended = [each for each in passes.values() if each.end == "exhausted" or _length(trial, each)]
        if len(batches) > 1 and ended and len(set(batches.values())) > 1:
            longest = max(passes.values(), key=lambda each: _batches(trial, each))
            yield _Uneven(loader, number, batches, longest)


def _batches(trial: Trial, seen: IteratorSeen) -> int:
    """Batches of a pass: those that came, or if it did not get to its end those that it was to have."""
    return seen.batches if seen.end == "exhausted" else max(seen.batches, _length(trial, seen) or 0)


def _length(trial: Trial, seen: IteratorSeen) -> int | None:
    own = (each.length for each in trial.loaders if each.key == seen.loader and each.pid == seen.pid)
    return next(own, None)


def _rank(trial: Trial, pid: int, loaders: dict[int, LoaderSeen]) -> str:
    loader = loaders.get(pid)
    if loader is not None and loader.rank is not None:
        return f"rank {loader.rank}"
    pids = sorted({seen.pid for seen in trial.iterators})
    return f"process {pids.index(pid)}"


def _stopped(trial: Trial, found: _Uneven) -> float | None:
    if trial.outcome == "ok":
        return None
    last = found.pass_
    return last.began_s + last.start_s + sum(last.waits) + sum(last.steps)
