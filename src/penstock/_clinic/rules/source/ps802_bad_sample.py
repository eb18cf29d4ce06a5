"""PS802 bad-sample

## What it finds
A `__getitem__` that returns None when a sample fails, given to a loader that cannot batch None.

## Why it matters
torch's default collate fails at the first None: "default_collate: batch must contain tensors …; found
<class 'NoneType'>". The true error was swallowed, and the message does not name the sample.

## How we know
The source returns None (or nothing) in an `except` block of `__getitem__`, and its loader has no
`collate_fn`.

## What to do
Let the exception through, with the index in its text; or filter in a `collate_fn`; or use
`penstock.DataLoader(..., on_error="skip")`, which names each bad sample.

## When we stay silent
When the loader has a `collate_fn` or cannot be seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place
from penstock._clinic.reading.patterns import is_none, quoted
from penstock._clinic.reading.program import Program, program, site


class BadSample:
    """None goes into a batch."""

    code: ClassVar[str] = "PS802"
    cause: ClassVar[str] = "bad-sample"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each such return."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.map_datasets:
            if not _is_collated(read, dataset):
                continue
            place = dataset.methods["__getitem__"]
            for node in _nones(place):
                yield self._finding(dataset, node, place)

    def _finding(self, dataset: ClassRead, node: ast.AST, place: Place) -> Finding:
        return suspicion(
            self,
            site(place.module, node),
            f"`{dataset.name}.__getitem__` answers an error with None, and default_collate cannot batch it",
            Prescription(
                change="raise, with the index in the message, or filter None in a collate_fn",
                expect="a bad sample is named, and does not fail elsewhere",
            ),
            ("in an except block", quoted(place.module, node)),
        )


def _is_collated(read: Program, dataset: ClassRead) -> bool:
    """Whether torch's own collate gets its samples: the loader is seen, and gives none of its own."""
    loaders = [each for each in read.loaders if each.datasets and each.datasets[0] is dataset]
    return any(each.lacks("collate_fn") for each in loaders)


def _nones(place: Place) -> Iterator[ast.AST]:
    """Returns of None in an except block, and except blocks after which the function just ends."""
    last = place.function.body[-1]
    for node in place.nodes():
        if not isinstance(node, ast.ExceptHandler):
            continue
        yield from (each for each in node.body if isinstance(each, ast.Return) and is_none(each.value))
        if isinstance(last, ast.Try) and node in last.handlers and _just_ends(node, last):
            yield node


def _just_ends(handler: ast.ExceptHandler, last: ast.Try) -> bool:
    """Whether the function falls off its end after this block, although it returns a sample otherwise."""
    leaves = (ast.Return, ast.Raise)
    if last.finalbody or any(isinstance(each, leaves) for each in ast.walk(handler)):
        return False
    return any(isinstance(each, ast.Return) for one in last.body for each in ast.walk(one))
