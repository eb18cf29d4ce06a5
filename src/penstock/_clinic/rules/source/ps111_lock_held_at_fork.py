"""PS111 lock-held-at-fork

## What it finds
A `threading.Lock` that a dataset takes in `__getitem__`, and that a thread of the program takes too.

## Why it matters
Fork copies the lock as it is at that moment, but not the thread that holds it. If the thread holds it then,
the worker waits for ever at its first sample, with no message.

## How we know
The source takes the same lock in `__getitem__` and in the function of a thread.

## What to do
Start the thread after the first pass has begun, give the dataset a lock of its own, made in the worker, or
pass `multiprocessing_context="forkserver"`.

## When we stay silent
When no thread of the program takes the lock, when `num_workers=0`, and with fresh workers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Place
from penstock._clinic.reading.module import FUNCTIONS, Module
from penstock._clinic.reading.patterns import FETCHING, keyword, made_by, quoted
from penstock._clinic.reading.program import Program, program, site

LOCKS = frozenset({"threading.Lock", "threading.RLock"})


class LockHeldAtFork:
    """A worker inherits a lock that nobody will release."""

    code: ClassVar[str] = "PS111"
    cause: ClassVar[str] = "lock-held-at-fork"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each lock that is taken on both sides."""
        if facts.source is None:
            return
        read = program(facts.source)
        threads = {name: node for place in _threads(read) for name, node in _taken(place)}
        if not threads:
            return
        for dataset in read.datasets:
            if read.forks(dataset) is None:
                continue
            for place in dataset.reach(*FETCHING):
                for name, node in _taken(place):
                    if name in threads and _is_lock(name, place.module):
                        yield self._finding(name, node, place.module)

    def _finding(self, name: str, node: ast.AST, module: Module) -> Finding:
        return suspicion(
            self,
            site(module, node),
            f"`{name}` is taken here and by a thread: if the thread holds it when workers are forked, they "
            "wait for ever",
            Prescription(
                change='start the thread after `iter(loader)`, or pass multiprocessing_context="forkserver"',
                expect="no worker inherits a held lock",
            ),
            ("taken in the worker", quoted(module, node)),
        )


def _threads(read: Program) -> Iterator[Place]:
    """The functions that threads of the program run."""
    for module in read.modules:
        for call in module.calls:
            if module.dotted(call.func) != "threading.Thread":
                continue
            target = keyword(call, "target")
            found = read.values.definition(target, module) if target is not None else None
            if found is not None and isinstance(found.node, FUNCTIONS):
                yield Place(found.node, found.module)


def _taken(place: Place) -> Iterator[tuple[str, ast.AST]]:
    """The names of locks that a function takes by `with`, or by `acquire()`."""
    for node in place.nodes():
        if isinstance(node, ast.withitem):
            name = place.module.dotted(node.context_expr)
            if name:
                yield name, node.context_expr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "acquire"
        ):
            name = place.module.dotted(node.func.value)
            if name:
                yield name, node


def _is_lock(name: str, module: Module) -> bool:
    """Whether a name of the top level is a lock of threads."""
    bound = module.bindings.get(module.tree, {}).get(name, [])
    made = [made_by(each, module) for each in bound]
    return any(each is not None and each[0] in LOCKS for each in made)
