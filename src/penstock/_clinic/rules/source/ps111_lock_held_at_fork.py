"""PS111 lock-held-at-fork

## What it finds
A `threading.Lock` that a dataset takes in `__getitem__`, and that a thread of the program takes too.

## Why it matters
Fork copies the lock as it is at that moment, but not the thread that holds it. If the thread holds it then,
the worker waits for ever at its first sample, with no message.

## How we know
The source takes the same lock in `__getitem__` and in the function of a thread, or in what these call.

## What to do
Start the thread after the first pass has begun, give the dataset a lock of its own, made in the worker, or
pass `multiprocessing_context="forkserver"`.

## When we stay silent
When no thread of the program takes the lock, when the file that starts the thread also joins threads or minds
forks (`os.register_at_fork`), when `num_workers=0`, and with fresh workers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Place, is_self
from penstock._clinic.reading.module import FUNCTIONS, Module
from penstock._clinic.reading.patterns import calls, keyword, made_by, quoted
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
        run = [each for place in _threads(read) for each in (place, *_called(read, place))]
        threads = {(owner, name) for place in run for name, owner, _ in _taken(place)}
        if not threads:
            return
        for dataset in read.datasets:
            if read.forks(dataset) is None:
                continue
            for place in (each for owner, roots in read.held(dataset) for each in owner.reach(*roots)):
                yield from (
                    self._finding(name, node, place.module)
                    for name, home, node in _taken(place)
                    if (home, name) in threads and _is_lock(name, place)
                )

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
    """The functions that threads of the program run: `target=` of a Thread, and `run` of a subclass."""
    for module in (each for each in read.modules if not _minds(each)):
        for call in module.calls:
            target = keyword(call, "target") if module.dotted(call.func) == "threading.Thread" else None
            if target is None:
                continue
            owner = module.owner(call)
            if isinstance(target, ast.Attribute) and is_self(target.value) and owner is not None:
                place = read.class_read(owner, module).methods.get(target.attr)
                yield from [place] if place is not None else []
                continue
            found = read.values.definition(target, module)
            if found is not None and isinstance(found.node, FUNCTIONS):
                yield Place(found.node, found.module)
    for each in read.classes:
        if "threading.Thread" in each.bases and not _minds(each.module):
            yield from each.reach("run")


def _minds(module: Module) -> bool:
    """Whether a file waits for threads to end, or says what becomes of locks at a fork."""
    return any(
        (isinstance(call.func, ast.Attribute) and call.func.attr == "join" and not call.args)
        or module.dotted(call.func) == "os.register_at_fork"
        for call in module.calls
    )


def _called(read: Program, place: Place) -> Iterator[Place]:
    """The methods of the program's other objects that a function calls, as in `self.store.scan()`."""
    for call in calls(place):
        if not isinstance(call.func, ast.Attribute):
            continue
        held = call.func.value
        values = [(held, place.module)]
        if isinstance(held, ast.Attribute) and is_self(held.value) and place.owner is not None:
            values = [(each.value, each.module) for each in place.owner.assigned(held.attr)]
        for value, module in values:
            for owner in read.classes_of(value, module):
                yield from owner.reach(call.func.attr)


def _taken(place: Place) -> Iterator[tuple[str, object, ast.AST]]:
    """The names of locks that a function takes by `with`, or by `acquire()`, and whose they are."""
    for node in place.nodes():
        taken: ast.AST | None = None
        if isinstance(node, ast.withitem):
            taken = node.context_expr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "acquire"
        ):
            taken = node.func.value
        name = place.module.dotted(taken) if taken is not None else ""
        if taken is not None and name:
            is_own = name.startswith("self.") and place.owner is not None
            yield name, place.owner.node if is_own and place.owner else place.module, taken


def _is_lock(name: str, place: Place) -> bool:
    """Whether a name of the top level, or an attribute, is a lock of threads."""
    if name.startswith("self.") and place.owner is not None:
        made = [made_by(each.value, each.module) for each in place.owner.assigned(name.removeprefix("self."))]
    else:
        module = place.module
        made = [made_by(each, module) for each in module.bindings.get(module.tree, {}).get(name, [])]
    return any(each is not None and each[0] in LOCKS for each in made)
