"""One class of the program: what it inherits, what it keeps, what its methods reach. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from penstock._clinic.reading.module import FUNCTIONS, Function, Module
from penstock._clinic.reading.values import Values

# What runs before there are workers.
MAKING = ("__init__", "__post_init__", "setup", "prepare", "__new__")


@dataclass(frozen=True, eq=False)
class Assignment:
    """`self.<attribute> = value`, and where."""

    attribute: str
    value: ast.expr
    node: ast.stmt
    method: Function
    module: Module


@dataclass(frozen=True, eq=False)
class Place:
    """A function, and the file in which it stands."""

    function: Function
    module: Module
    owner: ClassRead | None = None  # whose method it is, or whose methods call it

    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in its body, without what is defined inside it."""
        return self.module.body(self.function)


class ClassRead:
    """A class, with those classes of the program that it inherits from."""

    def __init__(
        self, node: ast.ClassDef, module: Module, parents: tuple[ClassRead, ...], values: Values
    ) -> None:
        self.values = values
        self.node = node
        self.module = module
        self.name = node.name
        self._reached: dict[tuple[str, ...], list[Place]] = {}
        self.lineage: tuple[ClassRead, ...] = (self, *(each for one in parents for each in one.lineage))
        self.bases = tuple(
            each.module.dotted(base) for each in self.lineage for base in each.node.bases if base is not None
        )

    @cached_property
    def methods(self) -> dict[str, Place]:
        """By name, its own and inherited ones."""
        found: dict[str, Place] = {}
        for each in self.lineage:
            for node in each.node.body:
                if isinstance(node, FUNCTIONS):
                    found.setdefault(node.name, Place(node, each.module, self))
        return found

    @cached_property
    def assignments(self) -> tuple[Assignment, ...]:
        """Every `self.x = value`, in all methods."""
        return tuple(
            Assignment(target.attr, value, node, place.function, place.module)
            for place in self.methods.values()
            for node in place.nodes()
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            for whole in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for target, value in _paired(whole, node.value)
            if isinstance(target, ast.Attribute) and is_self(target.value)
        )

    def made(self) -> tuple[Assignment, ...]:
        """What it keeps from its making: assignments in `__init__` and in what that calls."""
        return self._made

    @cached_property
    def _made(self) -> tuple[Assignment, ...]:
        making = {place.function for place in self.reach(*MAKING)}
        return tuple(each for each in self.assignments if each.method in making)

    def assigned(self, attribute: str) -> Iterator[Assignment]:
        """Every assignment to one attribute."""
        yield from (each for each in self.assignments if each.attribute == attribute)

    def reach(self, *roots: str) -> list[Place]:
        """Those methods, and the methods and functions of the same file that they call or touch."""
        if roots not in self._reached:
            self._reached[roots] = self._reach(roots)
        return self._reached[roots]

    def _reach(self, roots: tuple[str, ...]) -> list[Place]:
        waiting = [self.methods[name] for name in roots if name in self.methods]
        found: dict[Function, Place] = {}
        while waiting:
            place = waiting.pop(0)
            if place.function not in found:
                found[place.function] = place
                waiting += self._next(place)
        return list(found.values())

    def _next(self, place: Place) -> Iterator[Place]:
        for node in place.nodes():
            if isinstance(node, ast.Attribute) and is_self(node.value) and node.attr in self.methods:
                yield self.methods[node.attr]
            elif isinstance(node, ast.Call):
                found = self.values.definition(node.func, place.module)
                if found is not None and isinstance(found.node, FUNCTIONS):
                    yield Place(found.node, found.module)

    def uses(self, attribute: str, places: list[Place]) -> Iterator[tuple[ast.Attribute, Place]]:
        """Where some functions read `self.<attribute>`."""
        for place in places:
            if place.owner is not self:
                continue
            for node in place.nodes():
                if is_own(node, attribute) and isinstance(node.ctx, ast.Load):
                    yield node, place

    def mentions(self, *words: str) -> bool:
        """Whether one of these words is part of any name in the class."""
        return any(word in name for name in self._names for word in words)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for each in self.lineage for name in _names(each.node))


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with their values: `self.a, self.b = 1, 2` are two assignments."""
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        if len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        return
    yield target, value


def is_self(node: ast.AST) -> bool:
    """Whether it is the name `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_own(node: ast.AST, attribute: str) -> TypeGuard[ast.Attribute]:
    """Whether it is `self.<attribute>`."""
    return isinstance(node, ast.Attribute) and node.attr == attribute and is_self(node.value)


# With what a text is taken apart: that says nothing of how data are divided.
_OF_TEXT = frozenset({"split", "rsplit", "splitlines", "partition", "rpartition"})


def _names(node: ast.AST) -> Iterator[str]:
    of_text = {call.func for call in ast.walk(node) if isinstance(call, ast.Call) and _parts_text(call)}
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute) and each not in of_text:
            yield each.attr
        elif isinstance(each, (ast.arg, ast.keyword)):
            yield each.arg or ""


def _parts_text(call: ast.Call) -> bool:
    """Whether it is `line.split()` or `line.split(";")`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    is_plain = all(isinstance(each, ast.Constant) for each in given)
    return isinstance(call.func, ast.Attribute) and call.func.attr in _OF_TEXT and is_plain
