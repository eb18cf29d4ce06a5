"""PS101 unpicklable-dataset

## What it finds
Lambdas, local functions and classes, open files, locks, generators and connections in what is sent to fresh
workers: the dataset, `collate_fn`, `worker_init_fn`.

## Why it matters
With `spawn` and `forkserver` (the default on macOS, Windows, and Linux from Python 3.14) the loader pickles
all this for each worker. Functions and classes travel by their name at the top level of a module; what
belongs to the operating system cannot travel. The loader fails at `iter()` before the first batch.

## How we know
The source sets `spawn` or `forkserver` for a loader with workers, and gives it such an object.

## What to do
Move the function or class to the top level of a module; `functools.partial` carries arguments. Open files and
connections on first use in the worker, and leave them out in `__getstate__`.

## When we stay silent
When the start method is fork or not known, when `num_workers=0`, and when the class has `__getstate__` or
`__reduce__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Evidence, Experiment, Finding, Fix, Prescription
from penstock._clinic.reading.classes import Assignment, ClassRead
from penstock._clinic.reading.module import FUNCTIONS, Module
from penstock._clinic.reading.patterns import CLIENTS, FILES, THREAD_LOCKS, a, is_local, made_by, quoted
from penstock._clinic.reading.program import SHIPPING, LoaderMade, Program, program, site
from penstock._lab.plan import Change

OWN_PICKLING = ("__getstate__", "__reduce__", "__reduce_ex__")
FUNCTIONS_SENT = ("collate_fn", "worker_init_fn")


class UnpicklableDataset:
    """Something that cannot be pickled is sent to workers."""

    code: ClassVar[str] = "PS101"
    cause: ClassVar[str] = "unpicklable-dataset"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each object."""
        if facts.source is None:
            return
        read = program(facts.source)
        seen: set[tuple[str, int]] = set()
        for loader in read.loaders:
            if loader.start not in SHIPPING or not loader.may_work:
                continue
            for node, module, what in _sent(read, loader):
                place = site(module, node)
                if (place.file, place.line) not in seen:
                    seen.add((place.file, place.line))
                    yield self._finding(loader, node, module, what)

    def _finding(self, loader: LoaderMade, node: ast.AST, module: Module, what: str) -> Finding:
        return Finding(
            code=self.code,
            cause=self.cause,
            severity="error",
            message=f"{what} cannot be pickled, and `{loader.start}` pickles it for each worker",
            prescription=Prescription(
                change="use a function or class of the top level of a module, and open handles in the worker",
                expect="workers start",
                fix=Fix("lambda-to-function", site(module, node)) if isinstance(node, ast.Lambda) else None,
            ),
            evidence=(
                Evidence("sent to workers", quoted(module, node), "source"),
                Evidence("start method", loader.start, "source"),
            ),
            where=site(module, node),
            confidence="suspected",
            experiments=(
                Experiment(
                    "the same loader with forked workers",
                    Change(settings={"multiprocessing_context": "fork"}),
                ),
            ),
        )


def _sent(read: Program, loader: LoaderMade) -> Iterator[tuple[ast.AST, Module, str]]:
    for option in FUNCTIONS_SENT:
        value = loader.options.get(option)
        if value is not None:
            yield from _function(value.node, value.module, f"`{option}`")
    for dataset in loader.datasets:
        if not any(name in dataset.methods for name in OWN_PICKLING):
            yield from _kept(dataset)
        if is_local(dataset.node, dataset.module):
            yield dataset.node, dataset.module, f"`{dataset.name}`, a class defined inside a function,"
    yield from _arguments(read, loader)


def _function(node: ast.AST | None, module: Module, name: str) -> Iterator[tuple[ast.AST, Module, str]]:
    """A function that has no importable name, given as it is or by a name of the same place.

    Parameters are not followed: one caller's lambda does not meet another caller's workers.
    """
    bound = module.bound(node.id, node) if isinstance(node, ast.Name) else [node]
    for each in bound:
        if isinstance(each, ast.Lambda):
            yield each, module, f"{name}, a lambda,"
        elif isinstance(each, FUNCTIONS) and is_local(each, module):
            yield each, module, f"{name}, the local function `{each.name}`,"


def _kept(dataset: ClassRead) -> Iterator[tuple[ast.AST, Module, str]]:
    """What the dataset keeps from its making."""
    for each in dataset.made():
        if _is_replaced(dataset, each):
            continue
        name = f"`{dataset.name}.{each.attribute}`"
        kind = _kind(each)
        if kind is not None:
            yield each.node, each.module, f"{name}, {kind},"
        elif isinstance(each.value, (ast.Lambda, ast.Name)):
            yield from _function(each.value, each.module, name)


def _is_replaced(dataset: ClassRead, each: Assignment) -> bool:
    """Whether a later assignment in the same method takes its place."""
    same = (one for one in dataset.assigned(each.attribute) if one.method is each.method)
    return any(one.node.lineno > each.node.lineno for one in same)


def _kind(each: Assignment) -> str | None:
    if isinstance(each.value, ast.GeneratorExp):
        return "a generator"
    made = made_by(each.value, each.module)
    if made is None or made[0] == "os.open":
        return None
    found = FILES.get(made[0]) or THREAD_LOCKS.get(made[0]) or CLIENTS.get(made[0])
    return a(found) if found else None


def _arguments(read: Program, loader: LoaderMade) -> Iterator[tuple[ast.AST, Module, str]]:
    """Lambdas that are passed where the dataset is made: `Images(transform=lambda image: image / 255)`."""
    value = loader.options.get("dataset")
    if value is None:
        return
    for made in read.values.of(value.node, value.module):
        if not isinstance(made.node, ast.Call) or read.definition(made.node.func, made.module) is None:
            continue
        for arg in [*made.node.args, *(keyword.value for keyword in made.node.keywords)]:
            for node in ast.walk(arg):
                if isinstance(node, ast.Lambda) and _is_kept(node, made.module):
                    yield node, made.module, "a lambda that the dataset gets"


def _is_kept(node: ast.Lambda, module: Module) -> bool:
    """Whether a lambda is passed on, and not used up at once by `sorted(key=…)`, `map` or `filter`."""
    for each in module.above(node):
        if isinstance(each, ast.Call):
            return module.dotted(each.func).rpartition(".")[2] not in {
                "sorted",
                "map",
                "filter",
                "max",
                "min",
            }
    return True
