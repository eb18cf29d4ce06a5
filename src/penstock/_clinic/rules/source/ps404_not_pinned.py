"""PS404 not-pinned

## What it finds
A loader without `pin_memory=True` whose batches go to the GPU with `non_blocking=True`.

## Why it matters
`non_blocking=True` has no effect on ordinary memory: the copy waits, and the GPU waits with it.

## How we know
The source iterates over a loader without `pin_memory`, and copies in the same loop with `non_blocking=True`.
What it costs, only a run on the machine can tell: this is a remark.

## What to do
`DataLoader(..., pin_memory=True)`.

## When we stay silent
When `pin_memory` is given in any way, and when nothing is copied with `non_blocking=True`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.patterns import keyword, quoted
from penstock._clinic.reading.program import LoaderMade, program, site


class NotPinned:
    """A copy that was meant not to wait waits."""

    code: ClassVar[str] = "PS404"
    cause: ClassVar[str] = "not-pinned"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one remark for each loader."""
        if facts.source is None:
            return
        read = program(facts.source)
        copied: dict[int, tuple[LoaderMade, str]] = {}
        for module in read.modules:
            for node in module.nodes:
                copy = _copy(node) if isinstance(node, ast.For) else None
                if copy is None or not isinstance(node, ast.For):
                    continue
                for loader in read.loaders_of(node.iter, module):
                    copied.setdefault(id(loader.node), (loader, quoted(module, copy)))
        yield from (self._finding(*each) for each in copied.values() if each[0].lacks("pin_memory"))

    def _finding(self, loader: LoaderMade, copy: str) -> Finding:
        return suspicion(
            self,
            site(loader.module, loader.node),
            "batches are copied with `non_blocking=True`, which has no effect without `pin_memory=True`",
            Prescription(
                change="pin_memory=True",
                expect="copies run beside the computation",
                fix=Fix("set-option", site(loader.module, loader.node), {"pin_memory": True}),
            ),
            ("copied", copy),
            severity="info",
        )


def _copy(node: ast.For) -> ast.Call | None:
    """A copy that is not to wait, in the body of a loop."""
    for statement in node.body:
        for each in ast.walk(statement):
            if isinstance(each, ast.Call):
                given = keyword(each, "non_blocking")
                if isinstance(given, ast.Constant) and given.value is True:
                    return each
    return None
