"""PS812 worker-exited

## What it finds
A dataset that ends its process: `sys.exit()`, `exit()` or `os._exit()` in the path of `__getitem__`.

## Why it matters
In a worker that ends the worker. The training process is told "DataLoader worker exited unexpectedly", or
gets a bare ConnectionResetError, and never the reason.

## How we know
The source calls it in what workers run.

## What to do
Raise an exception that says what is wrong: it comes home with the worker's traceback.

## When we stay silent
When the call is not in the path of a sample, and when `num_workers=0`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Place
from penstock._clinic.reading.patterns import FETCHING, calls, quoted
from penstock._clinic.reading.program import program, site

EXITS = frozenset({"sys.exit", "os._exit", "exit", "quit"})


class WorkerExited:
    """A sample ends the worker."""

    code: ClassVar[str] = "PS812"
    cause: ClassVar[str] = "worker-exited"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each such call."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.datasets:
            if not read.may_work(dataset):
                continue
            for place in dataset.reach(*FETCHING):
                for call in calls(place):
                    name = place.module.dotted(call.func)
                    if name in EXITS:
                        yield self._finding(call, name, place)

    def _finding(self, call: ast.Call, name: str, place: Place) -> Finding:
        return suspicion(
            self,
            site(place.module, call),
            f"`{name}()` in a worker ends the worker, and the training process never learns why",
            Prescription(
                change="raise an exception with the reason", expect="the error comes home with its traceback"
            ),
            ("in the worker", quoted(place.module, call)),
        )
