"""PS213 copy-on-write-growth

## What it finds
A dataset that keeps a long list or dictionary of Python objects and reads from it in `__getitem__`.

## Why it matters
Forked workers share memory until someone writes to it, and reading a Python object writes its reference
count. Page after page is copied into every worker, until all of them hold the whole list.

## How we know
The source loads the list in `__init__` (`json.load`, `readlines`, `pickle.load`, a list over a file) and
reads it by index. How long it is, only a run can tell: this is a remark.

## What to do
Keep it as one array or tensor: `numpy.array(paths)`, or bytes with an array of offsets. For a few thousand
elements it does not matter.

## When we stay silent
When the list is turned into an array, and when `num_workers=0`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from penstock._clinic.facts import Facts
from penstock._clinic.finding import Finding, Prescription
from penstock._clinic.reading.answers import suspicion
from penstock._clinic.reading.classes import Assignment, ClassRead
from penstock._clinic.reading.patterns import quoted
from penstock._clinic.reading.program import program, site

LOADS = frozenset({"json.load", "json.loads", "pickle.load", "yaml.safe_load", "ujson.load", "orjson.loads"})


class CopyOnWriteGrowth:
    """Reading a list of Python objects copies it into every worker."""

    code: ClassVar[str] = "PS213"
    cause: ClassVar[str] = "copy-on-write-growth"
    needs: ClassVar[frozenset[str]] = frozenset({"source"})

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Yield one remark for each list."""
        if facts.source is None:
            return
        read = program(facts.source)
        for dataset in read.map_datasets:
            if read.forks(dataset) is None:
                continue
            for each in dataset.made():
                if _is_long(each) and _is_indexed(dataset, each.attribute):
                    yield self._finding(dataset, each)

    def _finding(self, dataset: ClassRead, each: Assignment) -> Finding:
        return suspicion(
            self,
            site(each.module, each.node),
            f"`{dataset.name}.{each.attribute}` holds Python objects: if there are millions of them, reading "
            "them copies them into every worker",
            Prescription(
                change=f"keep `self.{each.attribute}` as one array (numpy.array), if it is long",
                expect="the memory of workers stays flat",
            ),
            ("loaded before workers start", quoted(each.module, each.node)),
            severity="info",
        )


def _is_long(each: Assignment) -> bool:
    """Whether it comes from a file as Python objects."""
    node = each.value
    if isinstance(node, ast.Call):
        name = each.module.dotted(node.func)
        is_lines = isinstance(node.func, ast.Attribute) and node.func.attr in {"readlines", "splitlines"}
        return is_lines or name in LOADS
    return isinstance(node, ast.ListComp) and _goes_over_file(node, each)


def _goes_over_file(node: ast.ListComp, each: Assignment) -> bool:
    over = node.generators[0].iter
    if not isinstance(over, ast.Name):
        return False
    bound = each.module.bound(over.id, node)
    return any(isinstance(one, ast.Call) and each.module.dotted(one.func) == "open" for one in bound)


def _is_indexed(dataset: ClassRead, attribute: str) -> bool:
    uses = dataset.uses(attribute, dataset.reach("__getitem__"))
    return any(isinstance(place.module.parents.get(node), ast.Subscript) for node, place in uses)
