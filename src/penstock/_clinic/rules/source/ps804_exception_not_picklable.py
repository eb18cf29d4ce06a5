"""PS804 exception-not-picklable

## What it finds
A `__getitem__` that raises an exception whose class is defined inside a function.

## Why it matters
A worker sends the exception's class home by its name. A local class has none, the background thread that
pickles it drops the failure, and the loader waits for ever instead of telling the error.

## How we know
The source raises a class that is defined in a function, in the path of `__getitem__`.

## What to do
Define the exception at the top level of a module.

## When we stay silent
When the exception is caught in the dataset, and when `num_workers=0`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Place
from penstock._clinic.reading.patterns import FETCHING, is_local, quoted
from penstock._clinic.reading.program import program, site


class ExceptionNotPicklable:
    """An error that cannot come home."""

    code: ClassVar[str] = "PS804"
    cause: ClassVar[str] = "exception-not-picklable"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each raise."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.datasets:
            if not read.may_work(dataset):
                continue
            for place in dataset.reach(*FETCHING):
                for node in place.nodes():
                    name = _local(node, place)
                    if name is not None:
                        yield self._finding(node, name, place)

    def _finding(self, node: ast.AST, name: str, place: Place) -> Finding:
        return suspicion(
            self,
            site(place.module, node),
            f"`{name}` is defined inside a function: a worker cannot send it home, and the loader waits for "
            "ever instead of raising it",
            Prescription(
                change=f"define `{name}` at the top level of a module",
                expect="the error reaches the program",
                fix=Fix("module-level-exception", site(place.module, node), {"name": name}),
            ),
            ("raised in the worker", quoted(place.module, node)),
            severity="error",
        )


def _local(node: ast.AST, place: Place) -> str | None:
    """The name of the local class that is raised here and not caught here."""
    if not isinstance(node, ast.Raise) or node.exc is None:
        return None
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    if not isinstance(raised, ast.Name):
        return None
    bound = [each for each in place.module.bound(raised.id, node) if isinstance(each, ast.ClassDef)]
    if not bound or not is_local(bound[0], place.module):
        return None
    is_caught = any(isinstance(each, ast.Try) and each.handlers for each in place.module.above(node))
    return None if is_caught else raised.id
