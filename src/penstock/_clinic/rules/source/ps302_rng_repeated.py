"""PS302 rng-repeated

## What it finds
A random generator that a dataset makes in `__init__` and draws from in `__getitem__`.

## Why it matters
Every worker gets a copy of the generator in the same state. Workers draw the same numbers, so augmentations
repeat within each batch, and fresh workers draw them again in the next epoch. torch seeds only the global
generators (`torch`, `random`, `numpy.random`) of a worker.

## How we know
The source keeps the generator in an attribute and draws from it in `__getitem__`, and nothing seeds it in
the worker.

## What to do
Draw from a global generator (`torch.rand`, `numpy.random`), or seed this one per worker:

    def seed_worker(worker_id):
        info = torch.utils.data.get_worker_info()
        info.dataset.rng = np.random.default_rng(info.seed)

    DataLoader(..., worker_init_fn=seed_worker)

## When we stay silent
When every loader of the dataset has `num_workers=0`, when one of them has a `worker_init_fn`, and when the
class asks `get_worker_info()`, or makes or seeds the generator anew for each sample.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.reading.classes import Assignment, ClassRead, Place
from penstock._clinic.reading.patterns import RANDOM, calls, is_own_call, made_by, quoted
from penstock._clinic.reading.program import Program, program, site

SEEDING = ("seed", "manual_seed", "set_state", "setstate", "__setstate__")


class RngRepeated:
    """Workers repeat each other's random numbers."""

    code: ClassVar[str] = "PS302"
    cause: ClassVar[str] = "rng-repeated"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each generator."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.map_datasets:
            if not _may_repeat(read, dataset):
                continue
            for owner, roots in read.held(dataset):
                fetching = owner.reach(*roots)
                for each in owner.made():
                    use = _draw(owner, each, fetching)
                    if use is not None:
                        yield self._finding(owner, each, use)

    def _finding(self, dataset: ClassRead, each: Assignment, use: tuple[ast.AST, Place]) -> Finding:
        node, place = use
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            message=(
                f"`{dataset.name}.{each.attribute}` is copied into every worker in one state: workers draw "
                f"the same random numbers in `{place.function.name}`, and again in each epoch"
            ),
            prescription=Prescription(
                change=f"seed `self.{each.attribute}` in worker_init_fn from get_worker_info().seed",
                expect="workers and epochs draw different numbers",
                fix=Fix("seed-workers", site(each.module, each.node), {"attribute": each.attribute}),
            ),
            evidence=(
                Evidence("made before workers start", quoted(each.module, each.node), "source"),
                Evidence("drawn from in the worker", quoted(place.module, node), "source"),
            ),
            where=site(each.module, each.node, f"{dataset.name}.{each.method.name}"),
            confidence="suspected",
        )


def _may_repeat(read: Program, dataset: ClassRead) -> bool:
    if dataset.mentions("worker_info", "worker_id", "initial_seed"):
        return False
    loaders = read.loaders_for(dataset)
    working = [each for each in loaders if each.may_work]
    # Where one loader has it, another goes without on purpose: validation draws nothing.
    return not loaders or (bool(working) and all(each.lacks("worker_init_fn") for each in working))


def _draw(dataset: ClassRead, each: Assignment, fetching: list[Place]) -> tuple[ast.AST, Place] | None:
    """Where a worker draws from a generator that was made before it, and that nothing seeds there."""
    made = made_by(each.value, each.module)
    if made is None or made[0] not in RANDOM or not _is_whole(each.value, made[1]):
        return None
    functions = {place.function for place in fetching}
    if any(one.method in functions for one in dataset.assigned(each.attribute)):
        return None
    drawn = [call for place in fetching for call in calls(place)]
    if any(is_own_call(call, *SEEDING) == each.attribute for call in drawn):
        return None
    return next(iter(dataset.uses(each.attribute, fetching)), None)


def _is_whole(value: ast.AST | None, call: ast.Call) -> bool:
    """Whether a generator is what is kept, and not what it drew: `default_rng(0).normal(…)` is an array."""
    if value is call:
        return True
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    return value.func.attr == "manual_seed" and _is_whole(value.func.value, call)
