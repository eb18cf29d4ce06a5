"""Which names the user's code mentions where samples and batches are made. Reads code objects; runs none.

    dataset.__getitem__ ──▶ self.cut(…) ──▶ config.size          methods by their name, in any class at hand
    collate_fn          ──▶ pad(…)      ──▶ LIMITS["longest"]    functions and classes by their global name

What the program changes elsewhere (a learning rate in a config that the dataset holds too) is not mentioned
there, and no sample depends on it.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from penstock._lab.inside.walk import is_users

# Where samples are made, by datasets and by what they call.
_MAKERS = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__")
# By which a container is filled.
_ADDING = frozenset(
    {"append", "extend", "add", "appendleft", "put", "put_nowait", "write", "update", "setdefault", "pop"}
)
_EXPRESSION = 6  # steps in which an index is made
_MOST = 400  # functions that are read


def mentioned(things: Iterable[Any]) -> frozenset[str]:
    """Attributes, globals, closure variables and texts in the code of these things that makes samples.

    But for those that this code itself writes to, or fills: caches, counters, records of its own.
    """
    reader = _Reader()
    for thing in things:
        reader.meet(thing)
    reader.read()
    return frozenset(reader.names - reader.written)


class _Reader:
    """Follows the code from the makers; every method that a known class has under a mentioned name counts."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.written: set[str] = set()
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
            for name, is_written in list(_names(function.__code__)):
                self._mentioned(name, function.__globals__)
                if is_written:
                    self.written.add(name)
            for cell in function.__closure__ or ():
                try:
                    self.meet(cell.cell_contents)
                except ValueError:
                    continue  # not assigned yet

    def _mentioned(self, name: str, outside: dict[str, Any]) -> None:
        if name not in self.names:
            self.names.add(name)
            for kind in list(self._classes):
                self._called(kind, name)
        if name in outside:
            self.meet(outside[name])

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


def _names(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Names and texts in code and its comprehensions and inner functions; and whether each is written to.

    Local variables are nobody else's.
    """
    steps = list(dis.get_instructions(code))
    for place, step in enumerate(steps):
        if isinstance(step.argval, str) and "_FAST" not in step.opname:
            if step.opname.startswith("LOAD_"):
                yield step.argval, _is_filled(steps[place + 1 : place + _EXPRESSION])
            elif step.opname == "STORE_ATTR":
                yield step.argval, True
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names(part)
        elif isinstance(part, tuple):  # keys of a constant dictionary, names of keyword arguments
            yield from ((each, False) for each in part if isinstance(each, str))


def _is_filled(after: list[dis.Instruction]) -> bool:
    """Whether what was loaded gets an element, by what comes after: `self.cache[index] = …`, `.append(…)`."""
    if after and after[0].opname in {"LOAD_ATTR", "LOAD_METHOD"} and after[0].argval in _ADDING:
        return True
    for place, step in enumerate(after):
        if step.opname == "STORE_SUBSCR":
            return place > 0  # else it is the index
        if step.opname.startswith(("STORE_", "POP_", "RETURN_", "LOAD_ATTR", "LOAD_METHOD")):
            return False
    return False
