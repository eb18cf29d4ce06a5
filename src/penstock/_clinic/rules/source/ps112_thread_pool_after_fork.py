"""PS112 thread-pool-after-fork

## What it finds
`torch.set_num_threads(n)` with n above 1 in a worker: in `worker_init_fn` or in the dataset's methods.

## Why it matters
OpenMP's threads do not survive a fork. torch therefore gives each worker one thread; a worker that asks for
more, after the training process has used its own, waits for threads that do not exist.

## How we know
The source raises the number in code that runs in forked workers.

## What to do
Leave the number at 1: workers are the parallelism. Or pass `multiprocessing_context="forkserver"`.

## When we stay silent
When the number is 0, 1 or not known, when `num_workers=0`, and with fresh workers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Place
from penstock._clinic.reading.module import FUNCTIONS
from penstock._clinic.reading.patterns import FETCHING, calls, quoted
from penstock._clinic.reading.program import FORKING, Program, program, site


class ThreadPoolAfterFork:
    """A forked worker asks for threads that did not survive the fork."""

    code: ClassVar[str] = "PS112"
    cause: ClassVar[str] = "thread-pool-after-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each call."""
        if facts.source is None:
            return
        read = program(facts.source)
        for place in _in_workers(read):
            for call in calls(place):
                if place.module.dotted(call.func) != "torch.set_num_threads" or not call.args:
                    continue
                number = call.args[0]
                if isinstance(number, ast.Constant) and isinstance(number.value, int) and number.value > 1:
                    yield suspicion(
                        self,
                        site(place.module, call),
                        f"a forked worker sets {number.value} threads: OpenMP's pool did not survive the "
                        "fork, and the worker may wait for it for ever",
                        Prescription(
                            change=f"torch.set_num_threads({number.value}) → torch.set_num_threads(1)",
                            expect="workers do not wait for threads that are gone",
                            fix=Fix("one-thread", site(place.module, call)),
                        ),
                        ("in the worker", quoted(place.module, call)),
                    )


def _in_workers(read: Program) -> Iterator[Place]:
    for dataset in read.datasets:
        if read.forks(dataset) is not None:
            yield from dataset.reach(*FETCHING)
    for loader in read.loaders:
        value = loader.options.get("worker_init_fn")
        if value is None or value.node is None or loader.start not in FORKING or not loader.may_work:
            continue
        found = read.values.definition(value.node, value.module)
        if found is not None and isinstance(found.node, FUNCTIONS):
            yield Place(found.node, found.module)
