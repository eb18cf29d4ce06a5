"""PS202 fd-exhausted

## What it finds
A process that runs out of file descriptors because of tensors that came from workers.

## Why it matters
With torch's default sharing strategy each tensor from a worker holds one descriptor for as long as it lives,
in the worker that made it and in the consumer. A program that keeps its batches, or whose batches have
hundreds of tensors, reaches the limit (often 1,024): "Too many open files", "received 0 items of ancdata",
"unable to open shared memory object", or a hang when a worker's feeder thread fails.

## How we know
The text, together with the tensors per batch, the batches that the program still holds and the limit. Before
it fails: the program holds every batch, the consumer's descriptors rise with them, and the rest of the epoch
leads past the limit. The experiment lets go of kept batches, or raises the limit.

## What to do
Keep copies (`batch.clone()`), not what the loader handed over; make one tensor of many in the collate
function; or raise the limit (`ulimit -n 65536`).

## When we stay silent
When the dataset itself fails to close its files: it fails at `num_workers=0` too (PS801). When batches are
kept and the epoch ends well below the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic import amounts, growth
from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.inflight import InFlight, in_flight
from penstock._clinic.kept import at_the_end, keep_copies, keeper, let_go
from penstock._clinic.naming import loader_named
from penstock._clinic.said import Said, loader_of, said
from penstock._lab.plan import Change
from penstock._lab.record import IteratorSeen, LoaderSeen, Trial

_TEXT = re.compile(
    r"Too many open files|received \d+ items of ancdata"
    r"|unable to open shared memory object <[^>]*> in read-write mode(?!: (?!Too many))"
)

# Only when the rest of the epoch leads this far past the limit will it be reached for certain.
CERTAIN = 1.1
# The experiment's limit: many times what a container gives.
PLENTY = 65_536


class FdExhausted:
    """Tensors from workers use up the file descriptors."""

    code: ClassVar[str] = "PS202"
    cause: ClassVar[str] = "fd-exhausted"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding when descriptors ran out or certainly will."""
        for trial in facts.trials:
            found = said(trial, _TEXT)
            if found is not None and not _is_datasets_own(facts, found):
                yield self._failed(facts, trial, found)
                return
        yield from self._will_fail(facts)

    def _failed(self, facts: Facts, trial: Trial, found: Said) -> Finding:
        loader = loader_of(facts, trial, found.failure)
        ahead = in_flight(facts, loader) if loader is not None else InFlight(0, 0, 0)
        kept = keeper(trial, loader)
        what = "hangs" if trial.outcome == "hang" else "fails"
        limit = f"the limit of {trial.host.nofile:,} file descriptors" if trial.host.nofile else "the limit"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=f"{loader_named(loader)} {what} at {limit}: {_why(ahead, kept)}",
            prescription=_prescription(loader, kept),
            evidence=(
                Evidence("what was said", found.line, found.source),
                *_evidence(trial, ahead, kept),
            ),
            where=loader.site if loader is not None else None,
            loader=loader.key if loader is not None else None,
            experiments=_experiments(trial, kept),
            stopped_at_s=found.failure.at_s if found.failure is not None else trial.seconds,
        )

    def _will_fail(self, facts: Facts) -> Iterator[Finding]:
        trial = facts.observed
        if trial is None or not trial.host.nofile:
            return
        slope = growth.of_vitals(trial.vitals, "main_fds")
        for loader in facts.loaders:
            kept = keeper(trial, loader)
            end = at_the_end(slope, loader, kept) if kept is not None else 0.0
            if kept is None or end < CERTAIN * trial.host.nofile:
                continue
            yield Finding(
                code=self.code,
                cause=self.cause,
                severity="warning",
                message=(
                    f"the program keeps every batch of {loader_named(loader)}, and each holds "
                    f"{slope.per_step:.1f} file descriptors: {end:,.0f} by the end of the epoch of "
                    f"{loader.length or 0:,} batches, where {trial.host.nofile:,} are allowed"
                ),
                prescription=_prescription(loader, kept),
                evidence=tuple(_evidence(trial, in_flight(facts, loader), kept)),
                where=loader.site,
                loader=loader.key,
                experiments=(let_go("smaller"),),
            )


def _why(ahead: InFlight, kept: IteratorSeen | None) -> str:
    if kept is None:
        tensors = amounts.count(ahead.tensors, "tensor")
        return f"a batch has {tensors}, each with a descriptor of its own, and {ahead.batches} are in flight"
    tensors = amounts.count(max(1, kept.tensors_per_batch), "tensor")
    held = amounts.count(kept.kept, "batch")
    return f"the program still holds {held} of {tensors}, each with a descriptor of its own"


def _is_datasets_own(facts: Facts, found: Said) -> bool:
    """Whether the dataset leaks its own files: the text comes out of a sample, and without workers too."""
    failure = found.failure
    if failure is None or failure.phase != "sample" or failure.loader is None:
        return False
    zero = facts.at(failure.loader, 0)
    return zero is not None and said(zero, _TEXT) is not None


def _evidence(trial: Trial, ahead: InFlight, kept: IteratorSeen | None) -> Iterator[Evidence]:
    if trial.host.nofile:
        yield Evidence("limit of descriptors", f"{trial.host.nofile:,}", "host")
    most = max((seen.main_fds for seen in trial.vitals), default=0)
    if most:
        yield Evidence("descriptors of the consumer", f"{most:,} at most", "observed run")
    if kept is not None:
        yield Evidence("batches that the program holds", f"{kept.kept} of {kept.batches}", "observed run")
    if ahead.tensors:
        yield Evidence("tensors per batch", f"{ahead.tensors:,}", "observed run")
    workers = max((seen.worker_fds for seen in trial.vitals), default=0)
    if workers and kept is None:
        yield Evidence("descriptors of a worker", f"{workers:,} at most", "observed run")


def _experiments(trial: Trial, kept: IteratorSeen | None) -> tuple[Experiment, ...]:
    # The limit comes last: where the hard one is as low, it cannot be raised.
    raised = Experiment(
        title=f"the same with a limit of {PLENTY:,} descriptors",
        change=Change(nofile=max(PLENTY, 4 * trial.host.nofile)),
        drive="script" if kept is not None else "loader",
    )
    if kept is not None:
        return let_go(), raised
    packed = Experiment(
        title="the same loader, the tensors of a batch packed into one",
        change=Change(mends=("pack-tensors",)),
    )
    return packed, raised


def _prescription(loader: LoaderSeen | None, kept: IteratorSeen | None) -> Prescription:
    if kept is not None:
        return keep_copies(loader, "descriptors are given back as batches go; the number stays flat")
    return Prescription(
        change=(
            "let the collate function make one tensor of each field (pad or concatenate), "
            "or raise the limit: `ulimit -n 65536`"
        ),
        expect="one descriptor per field and batch, instead of one per sample and field",
        fix=Fix("pack-batch", loader.site if loader is not None else None),
    )
