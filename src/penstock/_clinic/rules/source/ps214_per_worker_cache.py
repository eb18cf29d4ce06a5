"""PS214 per-worker-cache

## What it finds
A dictionary of a dataset that `__getitem__` fills.

## Why it matters
Workers do not share what they store: a cache that would fit once is there `num_workers` times, and workers
that are not persistent throw it away after each epoch.

## How we know
The source stores into a dictionary of the dataset in `__getitem__` and never takes anything out. How much it
comes to, only a run can tell: this is a remark.

## What to do
Fill it before workers start, in one array or tensor; or bound it (`functools.lru_cache(maxsize=…)`).

## When we stay silent
When something is taken out again, and when `num_workers=0`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place, is_own
from penstock._clinic.reading.patterns import calls, is_own_call, quoted
from penstock._clinic.reading.program import program, site

REMOVALS = ("pop", "popitem", "clear")


class PerWorkerCache:
    """Every worker fills a cache of its own."""

    code: ClassVar[str] = "PS214"
    cause: ClassVar[str] = "per-worker-cache"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one remark for each cache."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.map_datasets:
            if not read.may_work(dataset):
                continue
            for attribute in dict.fromkeys(
                each.attribute for each in dataset.made() if _is_empty(each.value)
            ):
                found = _filled(dataset, attribute)
                if found is not None:
                    yield self._finding(dataset, attribute, *found)

    def _finding(self, dataset: ClassRead, attribute: str, node: ast.AST, place: Place) -> Finding:
        return suspicion(
            self,
            site(place.module, node),
            f"every worker fills `{dataset.name}.{attribute}` for itself, and nothing bounds it",
            Prescription(
                change=f"fill `self.{attribute}` before workers start, or bound it",
                expect="memory stays flat while the epoch goes on",
            ),
            ("stored in the worker", quoted(place.module, node)),
            severity="info",
        )


def _is_empty(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return not node.keys
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args
    return is_call and ast.unparse(node).startswith("dict(")


def _filled(dataset: ClassRead, attribute: str) -> tuple[ast.AST, Place] | None:
    """Where `__getitem__` stores into it, if nothing is ever taken out."""
    places = list(dataset.methods.values())
    if any(is_own_call(call, *REMOVALS) == attribute for place in places for call in calls(place)):
        return None
    if any(_is_deleted(node, attribute) for place in places for node in place.nodes()):
        return None
    for place in dataset.reach("__getitem__"):
        for node in place.nodes():
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Subscript) and is_own(target.value, attribute):
                return node, place
    return None


def _is_deleted(node: ast.AST, attribute: str) -> bool:
    if not isinstance(node, ast.Delete):
        return False
    return any(isinstance(each, ast.Subscript) and is_own(each.value, attribute) for each in node.targets)
