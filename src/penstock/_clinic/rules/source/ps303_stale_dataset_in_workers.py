"""PS303 stale-dataset-in-workers

## What it finds
A dataset that the program changes between epochs (`dataset.set_epoch(epoch)`, `loader.dataset.size = 64`)
while its loader keeps its workers (`persistent_workers=True`).

## Why it matters
Persistent workers were given the dataset when they started. What the program changes in its own copy later
does not reach them: every epoch has the order and the augmentation of the first.

## How we know
The source changes an attribute of the dataset, or an element of a list on it, in a loop, and its loader has
`persistent_workers=True`.

## What to do
Keep the value where workers see it: `multiprocessing.Value("i", 0)`, or a tensor after `share_memory_()`. Or
leave `persistent_workers` out.

## When we stay silent
When workers are not kept, when `num_workers=0`, when the value is in shared memory, when the change comes
before the first pass, and when the method that changes it is not in the source (that of a library may share).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, is_self
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import LoaderMade, Program, program, site


class StaleDatasetInWorkers:
    """Workers that are kept do not see what the program changes."""

    code: ClassVar[str] = "PS303"
    cause: ClassVar[str] = "stale-dataset-in-workers"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each change."""
        if facts.source is None:
            return
        read = program(facts.source)
        kept = [each for each in read.loaders if _keeps(read, each)]
        for loader in kept:
            for node, changed in _changes(read, loader):
                yield self._finding(loader, node, changed)

    def _finding(self, loader: LoaderMade, node: ast.AST, changed: str) -> Finding:
        return suspicion(
            self,
            site(loader.module, node),
            f"`{changed}` is changed between epochs, but the loader keeps its workers "
            "(`persistent_workers=True`), and they keep the dataset as it was",
            Prescription(
                change="keep the value in shared memory (multiprocessing.Value, share_memory_()), or "
                "persistent_workers=True → False",
                expect="every epoch sees the value of its own",
            ),
            ("changed in a loop", quoted(loader.module, node)),
            ("made with", quoted(loader.module, loader.node)),
        )


def _keeps(read: Program, loader: LoaderMade) -> bool:
    value = loader.options.get("persistent_workers")
    return value is not None and loader.may_work and read.values.is_true(value.node, value.module)


def _changes(read: Program, loader: LoaderMade) -> Iterator[tuple[ast.AST, str]]:
    """Changes of this loader's dataset in a loop of the same file, and the attribute that is changed."""
    module = loader.module
    for node in module.nodes:
        target = _target(node)
        if target is None or next(module.loops(node), None) is None:
            continue
        if not _is_dataset(read, target.value, loader):
            continue
        for dataset in loader.datasets[:1]:
            is_call = isinstance(node, ast.Call)
            names = _set_by(dataset, target.attr) if is_call else iter((target.attr,))
            yield from ((node, name) for name in names if _matters(dataset, name))


def _target(node: ast.AST) -> ast.Attribute | None:
    """The `x.attribute` that is assigned, or whose method is called."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "func", None)
    return target if isinstance(target, ast.Attribute) else None


def _is_dataset(read: Program, node: ast.expr, loader: LoaderMade) -> bool:
    """Whether an expression is `loader.dataset`, or the name of what the loader was given."""
    module = loader.module
    if isinstance(node, ast.Attribute) and node.attr == "dataset":
        return loader in read.loaders_of(node.value, module)
    given = loader.options["dataset"].node if "dataset" in loader.options else None
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(given, (ast.Name, ast.Attribute)):
        return not is_self(node) and ast.dump(node) == ast.dump(given)
    return False


def _set_by(dataset: ClassRead, method: str) -> Iterator[str]:
    """The plain attributes that a method of the dataset sets, and lists and dictionaries that it changes."""
    place = dataset.methods.get(method)
    if place is None or method.startswith("__"):
        return
    for each in dataset.assignments:
        if each.method is place.function:
            yield each.attribute
    written = (_written(node) for node in place.nodes())
    yield from dict.fromkeys(name for name in written if name and _is_container(dataset, name))


def _written(node: ast.AST) -> str:
    """The attribute of which `self.x[…] = value` changes an element."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
        return ""
    held = node.value
    return held.attr if isinstance(held, ast.Attribute) and is_self(held.value) else ""


def _is_container(dataset: ClassRead, attribute: str) -> bool:
    """Whether it is a list or a dictionary of the process's own; an array or a tensor may be shared."""
    kinds = (ast.List, ast.ListComp, ast.Dict, ast.DictComp)
    return any(
        isinstance(each.value, kinds)
        or (isinstance(each.value, ast.Call) and getattr(each.value.func, "id", "") in {"list", "dict"})
        for each in dataset.assigned(attribute)
    )


def _matters(dataset: ClassRead, attribute: str) -> bool:
    """Whether samples depend on an attribute, and it is not shared."""
    fetching = dataset.reach("__getitem__", "__iter__", "__getitems__")
    if not any(True for _ in dataset.uses(attribute, fetching)):
        return False
    shared = (ast.unparse(each.value) for each in dataset.assigned(attribute))
    return not any("share_memory" in text or "Value(" in text or "Array(" in text for text in shared)
