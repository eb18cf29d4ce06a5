"""PS814 nested-workers

## What it finds
A dataset that starts processes of its own inside a worker: a DataLoader with workers, a multiprocessing pool.

## Why it matters
Workers are daemons, and daemons may have no children: `AssertionError: daemonic processes are not allowed to
have children`. At num_workers=0 it works.

## How we know
Python's own refusal, with sample and line.

## What to do
num_workers=0 for the inner loader, threads in the place of an inner pool.

## When we stay silent
When nothing is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.failures import Case, cases, claimed_by
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.naming import at_place, loader_named, sample_named, short
from penstock._clinic.trying import mended, ours, with_workers


class NestedWorkers:
    """Workers that want workers."""

    code: ClassVar[str] = "PS814"
    cause: ClassVar[str] = "nested-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"observed"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding where a worker was refused a child."""
        for case in cases(facts):
            if claimed_by(case.failure) == self.cause:
                yield self._finding(case)
                return

    def _finding(self, case: Case) -> Finding:
        failure = case.failure
        is_pool = "multiprocessing/pool.py" in failure.traceback
        what = "a process pool" if is_pool else "a loader with workers"
        instead = "a pool of threads" if is_pool else "num_workers=0 for the inner loader"
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="info" if case.is_caught else "error",
            message=(
                f"a worker of {loader_named(case.loader)} starts {what} of its own{at_place(failure.site)},"
                f" for {sample_named(failure.index)}, and may not"
            ),
            prescription=Prescription(
                f"use {instead} inside the dataset",
                "samples load in workers as they do without",
                fix=None if is_pool else Fix("set-option", failure.site, {"num_workers": 0}),
            ),
            evidence=(
                Evidence("what Python said", short(f"{failure.type}: {failure.text}"), "observed run"),
                Evidence("sample", sample_named(failure.index), "observed run"),
            ),
            where=failure.site,
            loader=case.loader.key if case.loader else None,
            experiments=(
                mended("inner-workers-zero", "loaders inside workers with num_workers=0"),
                with_workers(0),
            ),
            remedy=ours(),
            stopped_at_s=None if case.is_caught else failure.at_s,
        )
