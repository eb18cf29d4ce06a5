"""PS803 result-not-picklable

## What it finds
A `__getitem__` that returns a generator, a lambda or an open file.

## Why it matters
A worker pickles its batch in a background thread that drops what it cannot pickle: the loader waits for ever,
with a traceback on stderr that looks unrelated.

## How we know
The source returns such an object from `__getitem__`, alone or inside a tuple, list or dictionary.

## What to do
Return plain data: tensors, arrays, numbers, strings and containers of them; `list(…)` of a generator.

## When we stay silent
When every loader of the dataset has `num_workers=0` or a `collate_fn`, which may use it up.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place
from penstock._clinic.reading.patterns import FILES, a, made_by, quoted
from penstock._clinic.reading.program import Program, program, site
from penstock._clinic.reading.values import returns


class ResultNotPicklable:
    """A batch that cannot be handed over."""

    code: ClassVar[str] = "PS803"
    cause: ClassVar[str] = "result-not-picklable"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each such part of a sample."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.map_datasets:
            place = dataset.methods["__getitem__"]
            if not _is_handed_over(read, dataset):
                continue
            for node in returns(place.function):
                for part in _parts(node):
                    kind = _kind(part, place)
                    if kind is not None:
                        yield self._finding(part, kind, place)

    def _finding(self, part: ast.expr, kind: str, place: Place) -> Finding:
        return suspicion(
            self,
            site(place.module, part),
            f"a sample holds {kind}, which a worker cannot hand over: the loader waits for ever",
            Prescription(change="return plain data: tensors, arrays, numbers, text", expect="batches arrive"),
            ("returned", quoted(place.module, part)),
            severity="error",
        )


def _is_handed_over(read: Program, dataset: ClassRead) -> bool:
    loaders = read.loaders_for(dataset)
    return any(each.may_work and each.lacks("collate_fn") for each in loaders)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """An expression, or what a tuple, list or dictionary holds."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for each in node.elts:
            yield from _parts(each)
    elif isinstance(node, ast.Dict):
        for each in node.values:
            yield from _parts(each)
    else:
        yield node


def _kind(node: ast.expr, place: Place) -> str | None:
    if isinstance(node, ast.GeneratorExp):
        return "a generator"
    if isinstance(node, ast.Lambda):
        return "a lambda"
    made = (
        made_by(node, place.module) if isinstance(node, ast.Call) and place.module.dotted(node.func) else None
    )
    kind = FILES.get(made[0]) if made else None
    return a(kind) if kind and kind != "file descriptor" else None
