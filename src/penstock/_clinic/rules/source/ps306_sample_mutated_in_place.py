"""PS306 sample-mutated-in-place

## What it finds
A `__getitem__` that changes in place what it took from the dataset's own store.

## Why it matters
`self.data[i]` is a view: `x.mul_(2)` changes the stored sample. With `num_workers=0` and with persistent
workers the change adds up epoch after epoch; with fresh workers it is lost. Results depend on the number of
workers.

## How we know
The source takes `self.data[index]`, calls an in-place operation on it and returns it, without a copy between.

## What to do
Take a copy first: `self.data[index].clone()` (tensor), `.copy()` (array).

## When we stay silent
When there is a copy between, and when what is stored may be a plain number or text, which cannot change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Fix, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import ClassRead, Place, is_self
from penstock._clinic.reading.module import Module
from penstock._clinic.reading.patterns import made_by, names_in, quoted
from penstock._clinic.reading.program import program, site

# Calls that make a tensor or an array of two dimensions or more when given so many.
ARRAYS = (
    "torch.rand",
    "torch.randn",
    "torch.zeros",
    "torch.ones",
    "torch.empty",
    "numpy.zeros",
    "numpy.ones",
)
ARRAYS_BY_PLACE = ("numpy.random.rand", "numpy.random.randn")
# Methods of tensors that end in an underscore and change nothing.
HARMLESS = frozenset({"requires_grad_", "share_memory_", "__setitem__"})


class SampleMutatedInPlace:
    """The stored sample is changed each time it is read."""

    code: ClassVar[str] = "PS306"
    cause: ClassVar[str] = "sample-mutated-in-place"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one finding for each change."""
        if facts.source is None:
            return
        for dataset in program(facts.source).map_datasets:
            place = dataset.methods["__getitem__"]
            for name, taken in _views(place):
                change = _change(name, taken, dataset, place)
                if change is not None and _is_returned(name, place):
                    yield self._finding(name, taken, change, place)

    def _finding(self, name: str, taken: ast.Assign, change: ast.AST, place: Place) -> Finding:
        text = ast.unparse(taken.value)
        return suspicion(
            self,
            site(place.module, change),
            f"`{name}` is the stored sample itself (`{text}`), and this changes it for every later epoch",
            Prescription(
                change=f"`{text}` → `{text}.clone()` (a tensor) or `.copy()` (an array)",
                expect="a sample is the same every time it is read",
                fix=Fix("clone-sample", site(place.module, taken), {"name": name}),
            ),
            ("taken from the store", quoted(place.module, taken)),
            ("changed in place", quoted(place.module, change)),
        )


def _views(place: Place) -> Iterator[tuple[str, ast.Assign]]:
    """Names that stand for `self.x[index]` and for nothing else."""
    index = [arg.arg for arg in place.function.args.args[1:2]]
    for node in place.nodes():
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        value, name = node.value, node.targets[0].id
        if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Attribute):
            continue
        is_indexed = isinstance(value.slice, ast.Name) and value.slice.id in index
        bound = [each for each in place.module.bound(name, node) if each is not None]
        if is_self(value.value.value) and is_indexed and len(bound) == 1:
            yield name, node


def _change(name: str, taken: ast.Assign, dataset: ClassRead, place: Place) -> ast.AST | None:
    for node in place.nodes():
        if isinstance(node, ast.Call) and _is_in_place_call(node, name):
            return node
        if isinstance(node, ast.AugAssign) and _is_name(node.target, name) and _is_array(taken, dataset):
            return node
    return None


def _is_in_place_call(call: ast.Call, name: str) -> bool:
    """`x.mul_(2)`: only tensors have such methods."""
    func = call.func
    if isinstance(func, ast.Attribute) and _is_name(func.value, name):
        return func.attr.endswith("_") and not func.attr.endswith("__") and func.attr not in HARMLESS
    out = next((each.value for each in call.keywords if each.arg == "out"), None)
    return out is not None and _is_name(out, name)


def _is_array(taken: ast.Assign, dataset: ClassRead) -> bool:
    """Whether the store is known to be an array of rows, whose elements are views and not numbers."""
    value = taken.value
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Attribute):
        return False
    return any(_has_rows(each.value, each.module) for each in dataset.assigned(value.value.attr))


def _has_rows(node: ast.expr, module: Module) -> bool:
    if isinstance(node, ast.ListComp):
        return _is_tensor(node.elt, module)
    if _is_reshaped(node):
        return True
    made = made_by(node, module)
    if made is None:
        return False
    name, call = made
    if name in ARRAYS and call.args and isinstance(call.args[0], ast.Tuple):
        return len(call.args[0].elts) > 1
    sized = (*(each for each in ARRAYS if each.startswith("torch")), *ARRAYS_BY_PLACE)
    return name in sized and len(call.args) > 1


def _is_reshaped(node: ast.expr) -> bool:
    """`….view(100, 20)`, `….reshape(100, 20)`, also before further calls."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"view", "reshape"} and len(node.args) > 1:
            return True
        node = node.func.value
    return False


def _is_tensor(node: ast.expr, module: Module) -> bool:
    made = made_by(node, module)
    return made is not None and made[0] in (*ARRAYS, *ARRAYS_BY_PLACE, "torch.arange", "torch.full")


def _is_returned(name: str, place: Place) -> bool:
    returned = (node for node in place.nodes() if isinstance(node, ast.Return) and node.value is not None)
    return any(name in names_in(node) for node in returned)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
