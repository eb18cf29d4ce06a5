"""PS304 stop-iteration-truncates

## What it finds
A map-style dataset that raises `StopIteration` from `__getitem__`, which ends the epoch early.

## Why it matters
The exception travels through the loader to the `for` loop, which takes it for the end of the data. The epoch
is shorter, the exit status is 0, and nothing is said. It is mostly a `next(…)` on an iterator that ran out.

## How we know
The observer saw the exception leave `__getitem__`, with its index, and the pass ended before `len(loader)`
batches. The experiment turns it into a RuntimeError, which is then seen.

## What to do
Catch it where it arises, or raise `RuntimeError` in its place (`next(it, None)` never raises it).

## When we stay silent
With iterable datasets, which end in just this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import bare
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.naming import at_place, loader_named, sample_named
from penstock._clinic.said import loader_of
from penstock._lab.plan import Change
from penstock._lab.record import Failure, IteratorSeen, LoaderSeen, Trial


class StopIterationTruncates:
    """StopIteration from a sample ends the epoch."""

    code: ClassVar[str] = "PS304"
    cause: ClassVar[str] = "stop-iteration-truncates"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each loader whose dataset raises StopIteration."""
        told: set[str] = set()
        for trial in facts.trials:
            for failure in trial.failures:
                loader = loader_of(facts, trial, failure)
                if bare(failure.type) != "StopIteration" or failure.phase not in {"sample", "collate"}:
                    continue
                if loader is not None and not loader.dataset.is_iterable and loader.key not in told:
                    told.add(loader.key)
                    yield self._finding(trial, loader, failure)

    def _finding(self, trial: Trial, loader: LoaderSeen, failure: Failure) -> Finding:
        cut = _cut(trial, loader, failure)
        short = f" after {cut.batches:,} of {loader.length:,} batches" if cut and loader.length else ""
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=(
                f"{sample_named(failure.index)} raises StopIteration{at_place(failure.site)}, which ends the "
                f"epoch of {loader_named(loader)}{short} without a word"
            ),
            prescription=Prescription(
                change="raise RuntimeError where the dataset raises StopIteration, or catch it there",
                expect="the epoch is whole, or ends with an error that names the sample",
                fix=Fix("raise-runtime-error", failure.site or loader.dataset.site),
            ),
            evidence=tuple(_evidence(loader, failure, cut)),
            where=failure.site or loader.dataset.site or loader.site,
            loader=loader.key,
            experiments=(
                Experiment(
                    title="the same loader, StopIteration turned into RuntimeError",
                    change=Change(mends=("stop-iteration-raises",)),
                    brings="RuntimeError",
                ),
            ),
        )


def _cut(trial: Trial, loader: LoaderSeen, failure: Failure) -> IteratorSeen | None:
    """The pass that it cut short."""
    for seen in trial.of(loader.key):
        is_short = loader.length is None or seen.batches < loader.length
        if seen.number == failure.iterator and seen.end == "exhausted" and is_short:
            return seen
    return None


def _evidence(loader: LoaderSeen, failure: Failure, cut: IteratorSeen | None) -> Iterator[Evidence]:
    who = "the consumer" if failure.worker in {None, -1} else f"worker {failure.worker}"
    yield Evidence("StopIteration", f"from {sample_named(failure.index)} in {who}", "observed run")
    if cut is not None and loader.length is not None:
        yield Evidence("batches of the epoch", f"{cut.batches:,} of {loader.length:,}", "observed run")
