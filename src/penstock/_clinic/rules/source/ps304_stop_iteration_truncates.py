"""PS304 stop-iteration-truncates

## What it finds
`StopIteration` in the `__getitem__` of a map-style dataset: raised there, or by `next(…)` on an iterator that
the dataset keeps.

## Why it matters
The loader takes StopIteration for the end of the data: the epoch just ends early, with no message and exit
status 0.

## How we know
The source raises it, or calls `next` without a default on an iterator made in `__init__`, and nothing catches
it. (An iterator made in `__getitem__` itself is a remark only: it may be long enough.)

## What to do
Raise IndexError or ValueError; give `next` a default, or catch StopIteration in the dataset.

## When we stay silent
When it is caught, when `next` has a default, when the iterator never ends (`itertools.cycle`, `count`), and
when it only answers an index beyond the length.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription, Severity
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place, is_self
from penstock._clinic.reading.module import Module
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import program, site


class StopIterationTruncates:
    """An epoch ends early in silence."""

    code: ClassVar[str] = "PS304"
    cause: ClassVar[str] = "stop-iteration-truncates"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each place."""
        if facts.source is None:
            return
        for dataset in program(facts.source).map_datasets:
            for place in dataset.reach("__getitem__"):
                if _is_generator(place):
                    continue
                for node in place.nodes():
                    severity = _severity(node, dataset, place)
                    if severity is not None and not _is_caught(node, place.module):
                        yield self._finding(node, place.module, severity)

    def _finding(self, node: ast.AST, module: Module, severity: Severity) -> Finding:
        return suspicion(
            self,
            site(module, node),
            "StopIteration from a map-style dataset ends the epoch early, without a message",
            Prescription(
                change="raise IndexError or ValueError, or give `next` a default",
                expect="the epoch is complete, or fails with its reason",
            ),
            ("in the path of __getitem__", quoted(module, node)),
            severity=severity,
        )


def _is_generator(place: Place) -> bool:
    """In a generator PEP 479 makes it a RuntimeError."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in place.nodes())


def _severity(node: ast.AST, dataset: ClassRead, place: Place) -> Severity | None:
    """How certain it is that StopIteration comes from here; None where it does not."""
    if _stops(node, dataset, place):
        return "warning"
    return "info" if isinstance(node, ast.Call) and _is_local_next(node, place.module) else None


def _is_local_next(call: ast.Call, module: Module) -> bool:
    """`next(rows)`, where `rows = iter(…)` in the same function: it may be long enough."""
    is_next = isinstance(call.func, ast.Name) and call.func.id == "next" and len(call.args) == 1
    name = call.args[0] if is_next else None
    if not isinstance(name, ast.Name):
        return False
    bound = module.bound(name.id, call)
    return bool(bound) and all(isinstance(each, ast.Call) and _is_iter(each) for each in bound)


def _is_iter(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "iter"


def _stops(node: ast.AST, dataset: ClassRead, place: Place) -> bool:
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        is_stop = isinstance(raised, ast.Name) and raised.id == "StopIteration"
        return is_stop and not _is_beyond(node, place.module)
    return isinstance(node, ast.Call) and _is_ending_next(node, dataset)


def _is_beyond(node: ast.AST, module: Module) -> bool:
    """Whether it answers an index that is out of range, which no sampler asks for."""
    test = next((each.test for each in module.above(node) if isinstance(each, ast.If)), None)
    return test is not None and ("len" in ast.unparse(test) or ">=" in ast.unparse(test))


def _is_ending_next(call: ast.Call, dataset: ClassRead) -> bool:
    """`next(self.stream)`, where the stream is a finite iterator made before."""
    is_next = isinstance(call.func, ast.Name) and call.func.id == "next" and len(call.args) == 1
    arg = call.args[0] if is_next else None
    if not isinstance(arg, ast.Attribute) or not is_self(arg.value):
        return False
    values = [each.value for each in dataset.assigned(arg.attr)]
    return bool(values) and all(
        isinstance(value, ast.GeneratorExp) or (isinstance(value, ast.Call) and _is_iter(value))
        for value in values
    )


def _is_caught(node: ast.AST, module: Module) -> bool:
    child = node
    for each in module.above(node):
        if isinstance(each, ast.Try) and child in each.body and any(_catches(one) for one in each.handlers):
            return True
        child = each
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    names = (
        {each.id for each in ast.walk(handler.type) if isinstance(each, ast.Name)} if handler.type else set()
    )
    return handler.type is None or bool(names & {"StopIteration", "Exception", "BaseException"})
