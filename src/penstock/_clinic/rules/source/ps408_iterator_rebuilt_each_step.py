"""PS408 iterator-rebuilt-each-step

## What it finds
`next(iter(loader))` inside a loop over steps.

## Why it matters
`iter(loader)` starts all workers, and dropping the iterator ends them: a step that should take milliseconds
takes as long as starting `num_workers` processes, and every batch but the first of each was made in vain.
Without shuffling it is always the same batch.

## How we know
The source calls `next(iter(loader))` in the body of a loop.

## What to do
Make the iterator once, and take a new one only when it ends:

    batches = iter(loader)
    for step in range(steps):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)

## When we stay silent
When the loader has `num_workers=0`, when the loop counts epochs or goes over another loader's epochs or over
a few values that are written out, when the loop is left in the same pass, and when the call is an answer to
`StopIteration`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Finding, Fix, Prescription
from penstock._clinic.reading.module import LOOPS, Module
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import Program, program, site

SLOW_LOOPS = ("epoch", "run", "trial", "fold", "seed", "round", "model", "task", "phase", "split")


class IteratorRebuiltEachStep:
    """Workers are started for every step."""

    code: ClassVar[str] = "PS408"
    cause: ClassVar[str] = "iterator-rebuilt-each-step"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each such call."""
        if facts.source is None:
            return
        read = program(facts.source)
        for module in read.modules:
            for call in module.calls:
                loader = _loader(call)
                if loader is not None and _has_workers(read, loader, module) and _is_stepwise(call, module):
                    yield self._finding(call, loader, module)

    def _finding(self, call: ast.Call, loader: ast.expr, module: Module) -> Finding:
        name = ast.unparse(loader)
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="warning",
            message=f"`next(iter({name}))` in a loop starts all workers anew for every batch",
            prescription=Prescription(
                change=f"make `iter({name})` once before the loop, and anew only after StopIteration",
                expect="a step takes as long as one batch, not as long as starting the workers",
                fix=Fix("reuse-iterator", site(module, call), {"loader": name}),
            ),
            evidence=(Evidence("in the body of a loop", quoted(module, call), "source"),),
            where=site(module, call),
            confidence="suspected",
        )


def _loader(call: ast.Call) -> ast.expr | None:
    """The loader of `next(iter(loader))` and `iter(loader).__next__()`."""
    inner: ast.AST | None = None
    if isinstance(call.func, ast.Name) and call.func.id == "next" and call.args:
        inner = call.args[0]
    elif isinstance(call.func, ast.Attribute) and call.func.attr in {"__next__", "next"}:
        inner = call.func.value
    if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Name) or inner.func.id != "iter":
        return None
    return inner.args[0] if len(inner.args) == 1 else None


def _has_workers(read: Program, node: ast.expr, module: Module) -> bool:
    loaders = read.loaders_of(node, module)
    if loaders:
        return any(loader.may_work for loader in loaders)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lower().endswith(("dataloader", "data_loader", "train_loader", "trainloader"))


def _is_stepwise(call: ast.Call, module: Module) -> bool:
    """Whether it happens at every turn of a loop over steps."""
    if any(isinstance(each, ast.ExceptHandler) for each in module.above(call)) or module.is_conditional(call):
        return False
    loop = next(module.loops(call), None)
    if loop is None or _is_left(loop) or _has_loop(loop) or _is_over_settings(loop):
        return False
    head = ast.unparse(loop.test if isinstance(loop, ast.While) else loop.target).lower()
    source = "" if isinstance(loop, ast.While) else ast.unparse(loop.iter).lower()
    return not any(word in f"{head} {source}" for word in SLOW_LOOPS)


def _has_loop(loop: ast.AST) -> bool:
    """Whether there is a further loop inside: this one then is over epochs."""
    return any(isinstance(node, LOOPS) for each in ast.iter_child_nodes(loop) for node in ast.walk(each))


def _is_over_settings(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether the loop goes over values that are written out: nobody writes steps so."""
    return not isinstance(loop, ast.While) and isinstance(loop.iter, (ast.Tuple, ast.List, ast.Set))


def _is_left(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether the body always ends the loop."""
    return any(isinstance(each, (ast.Break, ast.Return)) for each in loop.body)
