"""PS103 class-not-importable

## What it finds
A dataset class, or a `collate_fn`, that is defined under `if __name__ == "__main__":` or in a notebook, and
sent to fresh workers.

## Why it matters
With `spawn` and `forkserver` a worker imports the script under another name, does not run what is under the
guard, and cannot find the class: "Can't get attribute 'Images' on <module '__main__' …>".

## How we know
The source sets `spawn` or `forkserver` for the loader, and the definition stands where no import reaches it.

## What to do
Move the class above the guard; from a notebook, into a file of its own that both import.

## When we stay silent
When the start method is fork or not known, and when `num_workers=0`. Classes inside functions are PS101.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.module import FUNCTIONS, Module
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import SHIPPING, LoaderMade, Program, program, site


class ClassNotImportable:
    """Workers cannot import the class of what they are sent."""

    code: ClassVar[str] = "PS103"
    cause: ClassVar[str] = "class-not-importable"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each definition."""
        if facts.source is None:
            return
        read = program(facts.source)
        seen: set[int] = set()
        for loader in read.loaders:
            if loader.start not in SHIPPING or not loader.may_work:
                continue
            for node, module in _sent(read, loader):
                if id(node) not in seen and _is_hidden(node, module):
                    seen.add(id(node))
                    yield self._finding(loader, node, module)

    def _finding(self, loader: LoaderMade, node: ast.AST, module: Module) -> Finding:
        name = getattr(node, "name", "it")
        where = "in a notebook" if module.file.is_notebook else 'under `if __name__ == "__main__":`'
        home = "a file of its own" if module.file.is_notebook else "the top level, above the guard"
        return suspicion(
            self,
            site(module, node),
            f"`{name}` is defined {where}, where workers that `{loader.start}` starts cannot import it",
            Prescription(
                change=f"move `{name}` to {home}",
                expect="workers find it and start",
                fix=Fix("move-class", site(module, node), {"name": name}),
            ),
            ("definition", quoted(module, node)),
            ("start method", loader.start),
            severity="error",
        )


def _sent(read: Program, loader: LoaderMade) -> Iterator[tuple[ast.AST, Module]]:
    yield from ((dataset.node, dataset.module) for dataset in loader.datasets)
    for option in ("collate_fn", "worker_init_fn"):
        value = loader.options.get(option)
        found = read.values.definition(value.node, value.module) if value and value.node else None
        if found is not None and isinstance(found.node, FUNCTIONS):
            yield found.node, found.module


def _is_hidden(node: ast.AST, module: Module) -> bool:
    if any(isinstance(each, FUNCTIONS) for each in module.above(node)):
        return False
    return module.file.is_notebook or module.is_guarded(node)
