"""PS409 lock-serialises-workers

## What it finds
A lock between processes that `__getitem__` holds while it reads or transforms a sample.

## Why it matters
Only one worker at a time can then make a sample: four workers are as fast as one, and pay for the waiting.
Workers are processes with files of their own; reading needs no lock.

## How we know
The source holds a `multiprocessing.Lock` around the reading in `__getitem__`.

## What to do
Take the reading out of the lock, and hold it only for what workers really share. If the lock protects one
open file, let every worker open its own (PS115).

## When we stay silent
When the lock guards only a few simple statements, such as a counter, and when it is a lock of threads, which
other processes do not see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Place
from penstock._clinic.reading.patterns import is_process_lock, made_by, quoted
from penstock._clinic.reading.program import Program, program, site

# What a call under the lock is named when it reads or makes a sample.
WORK = (
    "open", "read", "load", "imread", "decode", "transform", "fetch", "sleep", "resize", "fromfile",
    "frombuffer", "memmap", "seek", "recv", "execute", "crop", "augment", "parse", "tokenize",
)  # fmt: skip
SEVERAL = 2


class LockSerialisesWorkers:
    """One worker at a time makes a sample."""

    code: ClassVar[str] = "PS409"
    cause: ClassVar[str] = "lock-serialises-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each block under a lock."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.datasets:
            if not read.may_work(dataset, SEVERAL):
                continue
            for place in dataset.reach("__getitem__", "__getitems__"):
                for node in place.nodes():
                    lock = _lock(read, node, place)
                    work = _work(node, place) if lock is not None else None
                    if lock is not None and work is not None:
                        yield self._finding(lock, work, place)

    def _finding(self, lock: ast.expr, work: ast.AST, place: Place) -> Finding:
        name = ast.unparse(lock)
        return suspicion(
            self,
            site(place.module, lock),
            f"`{name}` is held while a sample is made, so only one worker works at a time",
            Prescription(
                change=f"take the reading out of `with {name}:`",
                expect="workers make samples at the same time",
                fix=Fix("remove-lock", site(place.module, lock), {"path": name}),
            ),
            ("held for", quoted(place.module, lock)),
            ("work under the lock", quoted(place.module, work)),
        )


def _lock(read: Program, node: ast.AST, place: Place) -> ast.expr | None:
    """The lock between processes that a `with` holds."""
    if not isinstance(node, ast.With):
        return None
    for item in node.items:
        for value in read.values.of(item.context_expr, place.module):
            made = made_by(value.node, value.module)
            if made is not None and is_process_lock(made[0]):
                return item.context_expr
    return None


def _work(node: ast.AST, place: Place) -> ast.AST | None:
    """A call in the block that reads or makes a sample."""
    assert isinstance(node, ast.With)
    for statement in node.body:
        for each in ast.walk(statement):
            if isinstance(each, ast.Call) and _is_work(each, place):
                return each
    return None


def _is_work(call: ast.Call, place: Place) -> bool:
    name = place.module.dotted(call.func) or getattr(call.func, "attr", "")
    words = name.rpartition(".")[2].lower().split("_")
    return any(word.startswith(WORK) for word in words)
