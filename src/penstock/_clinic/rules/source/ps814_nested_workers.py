"""PS814 nested-workers

## What it finds
A dataset that starts processes in `__getitem__`: a loader with workers, a pool, a process.

## Why it matters
torch's workers are daemons, and Python does not let daemons have children: "AssertionError: daemonic
processes are not allowed to have children".

## How we know
The source makes a loader with `num_workers` above 0, a `multiprocessing.Pool` or a `Process` in what workers
run, and the dataset's own loader has workers.

## What to do
Use `num_workers=0` inside; or let the outer loader do the parallel work. Threads
(`concurrent.futures.ThreadPoolExecutor`) are allowed.

## When we stay silent
When the outer loader has `num_workers=0` or is not known to have workers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place
from penstock._clinic.reading.patterns import FETCHING, MULTIPROCESSING, calls, quoted
from penstock._clinic.reading.program import Program, program, site

STARTERS = frozenset(
    {
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.process.ProcessPoolExecutor",
        *(f"{module}.{name}" for module in MULTIPROCESSING for name in ("Pool", "Process", "Manager")),
        *(f"{module}.pool.Pool" for module in MULTIPROCESSING),
    }
)


class NestedWorkers:
    """A worker starts processes of its own."""

    code: ClassVar[str] = "PS814"
    cause: ClassVar[str] = "nested-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each start."""
        if facts.source is None:
            return
        read = program(facts.source)
        inner = {id(each.node) for each in read.loaders if each.workers}
        for dataset in read.datasets:
            if not _has_workers(read, dataset):
                continue
            for place in dataset.reach(*FETCHING):
                for call in calls(place):
                    if id(call) in inner or place.module.dotted(call.func) in STARTERS:
                        yield self._finding(call, place)

    def _finding(self, call: ast.Call, place: Place) -> Finding:
        name = ast.unparse(call.func)
        return suspicion(
            self,
            site(place.module, call),
            f"`{name}` starts processes inside a worker, and workers may not have children",
            Prescription(
                change="num_workers=0 inside, or threads in place of processes", expect="samples are made"
            ),
            ("in the worker", quoted(place.module, call)),
            severity="error",
        )


def _has_workers(read: Program, dataset: ClassRead) -> bool:
    return any(each.workers for each in read.loaders if dataset in each.datasets)
