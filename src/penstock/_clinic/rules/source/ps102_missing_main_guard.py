"""PS102 missing-main-guard

## What it finds
A script that iterates over a loader with fresh workers at its top level, without
`if __name__ == "__main__":`.

## Why it matters
With `spawn` and `forkserver` each worker imports the script again. Without a guard it comes to the same loop,
tries to start workers of its own, and Python refuses: "An attempt has been made to start a new process before
the current process has finished its bootstrapping phase".

## How we know
The source sets `spawn` or `forkserver`, and the loop (or the call that leads to it) stands at the top level
outside a guard.

## What to do
    def main():
        ...

    if __name__ == "__main__":
        main()

## When we stay silent
When the start method is fork or not known, in notebooks, when `num_workers=0`, and when the loop is under a
guard or in a function that only guarded code calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.module import Function, Module
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import SHIPPING, LoaderMade, Program, program, site

DEEPEST = 5  # calls from the top level to the loop


class MissingMainGuard:
    """Fresh workers run the whole script again."""

    code: ClassVar[str] = "PS102"
    cause: ClassVar[str] = "missing-main-guard"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each script."""
        if facts.source is None:
            return
        read = program(facts.source)
        for module in read.modules:
            if module.file.is_notebook or not any(each.start in SHIPPING for each in read.loaders):
                continue
            found = next(_unguarded(read, module), None)
            if found is not None:
                yield self._finding(module, *found)

    def _finding(self, module: Module, node: ast.AST, loader: LoaderMade) -> Finding:
        return suspicion(
            self,
            site(module, node),
            f"this runs again in every worker that `{loader.start}` starts: there is no "
            '`if __name__ == "__main__":` around it',
            Prescription(
                change='put the program under `if __name__ == "__main__":`',
                expect="workers import the script without starting workers of their own",
                fix=Fix("main-guard", site(module, node)),
            ),
            ("at the top level", quoted(module, node)),
            ("start method", loader.start),
            severity="error",
        )


def _unguarded(read: Program, module: Module) -> Iterator[tuple[ast.AST, LoaderMade]]:
    """Statements of the top level, outside a guard, that lead to a loop over a shipping loader."""
    for node, loader in _loops(read, module):
        function = module.function(node)
        start = node if function is None else _caller(function, module)
        if start is not None and not module.is_guarded(start):
            yield start, loader


def _loops(read: Program, module: Module) -> Iterator[tuple[ast.AST, LoaderMade]]:
    for node in module.nodes:
        over: ast.AST | None = None
        if isinstance(node, (ast.For, ast.comprehension)):
            over = node.iter
        elif (
            isinstance(node, ast.Call) and module.dotted(node.func) in {"next", "list", "iter"} and node.args
        ):
            over = node.args[0]
        if over is None:
            continue
        for loader in read.loaders_of(over, module):
            if loader.start in SHIPPING and (loader.workers or 0) > 0:
                yield (node if isinstance(node, (ast.For, ast.Call)) else over), loader


def _caller(function: Function, module: Module, depth: int = 0) -> ast.AST | None:
    """The statement of the top level that calls a function, directly or through others."""
    if depth > DEEPEST or isinstance(module.parents.get(function), ast.ClassDef):
        return None
    for call in module.calls:
        if not isinstance(call.func, ast.Name) or call.func.id != function.name:
            continue
        if function not in module.bound(call.func.id, call):
            continue
        outer = module.function(call)
        found = call if outer is None else _caller(outer, module, depth + 1)
        if found is not None:
            return found
    return None
