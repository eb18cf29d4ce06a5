"""Which names the user's code mentions where samples and batches are made. Reads code objects; runs none.

    dataset.__getitem__ ──▶ self.cut(…) ──▶ config.size          methods by their name, in any class at hand
    collate_fn          ──▶ pad(…)      ──▶ LIMITS["longest"]    functions and classes by their global name

What the program changes elsewhere (a learning rate in a config that the dataset holds too) is not mentioned
there, and no sample depends on it.
"""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from penstock._lab.inside.walk import is_users

# Where samples are made, by datasets and by what they call.
_MAKERS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__")
# What a record is told: it is not read for that.
_ADDING = frozenset({"append", "extend", "add", "appendleft", "put", "put_nowait", "write"})
_MOST = 400  # functions that are read


def mentioned(things: Iterable[Any]) -> frozenset[str]:
    """Attributes, globals, closure variables and texts in the code of these things that makes samples."""
    reader = _Reader()
    for thing in things:
        reader.meet(thing)
    reader.read()
    return frozenset(reader.names)


class _Reader:
    """Follows the code from the makers; every method that a known class has under a mentioned name counts."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._classes: dict[type, None] = {}
        self._seen: set[types.FunctionType] = set()
        self._ahead: list[types.FunctionType] = []

    def meet(self, thing: Any) -> None:
        """Something that makes samples, or is at hand where they are made."""
        thing = getattr(thing, "func", thing) if isinstance(thing, functools.partial) else thing
        if isinstance(thing, types.MethodType):
            self._add(thing.__func__)
            thing = thing.__self__
        if isinstance(thing, types.FunctionType):
            self._add(thing)
            return
        kind = thing if isinstance(thing, type) else type(thing)
        if kind in self._classes or not is_users(kind):
            return
        self._classes[kind] = None
        for name in {*_MAKERS, *self.names}:
            self._called(kind, name)

    def read(self) -> None:
        """Until there is nothing new."""
        while self._ahead and len(self._seen) <= _MOST:
            function = self._ahead.pop()
            for name in list(_names(function.__code__)):
                if name not in self.names:
                    self.names.add(name)
                    for kind in list(self._classes):
                        self._called(kind, name)
                if name in function.__globals__:
                    self.meet(function.__globals__[name])
            for cell in function.__closure__ or ():
                try:
                    self.meet(cell.cell_contents)
                except ValueError:
                    continue  # not assigned yet

    def _called(self, kind: type, name: str) -> None:
        for cls in kind.__mro__:
            if name in vars(cls):
                for function in _functions(vars(cls)[name]):
                    self._add(function)
                return

    def _add(self, function: Any) -> None:
        while isinstance(function, types.FunctionType) and function not in self._seen:
            self._seen.add(function)
            if is_users(function):
                self._ahead.append(function)
            function = getattr(function, "__wrapped__", None)


def _functions(member: Any) -> Iterator[Any]:
    if isinstance(member, property):
        yield member.fget
    else:
        yield getattr(member, "__func__", member)


def _names(code: types.CodeType) -> Iterator[str]:
    """Names and texts that code reads, its comprehensions and inner functions too; no local variables.

    What is only written to is not read: an attribute that is set, a record to which something is added.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname.startswith("LOAD_")]
    for step, after in itertools.zip_longest(steps, steps[1:]):
        is_name = isinstance(step.argval, str) and not step.opname.startswith("LOAD_FAST")
        if is_name and not (after and _adds(after)):
            yield step.argval
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names(part)
        elif isinstance(part, tuple):  # keys of a constant dictionary, names of keyword arguments
            yield from (each for each in part if isinstance(each, str))


def _adds(step: dis.Instruction) -> bool:
    return step.opname in {"LOAD_ATTR", "LOAD_METHOD"} and step.argval in _ADDING
