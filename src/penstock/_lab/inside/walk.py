"""What hangs on an object, with the attribute path to each part. Bounded, and runs no code of the user's.

Reads attributes straight from their descriptors: no property, no `__getattr__`, no `__iter__` of the user's
classes is called. Each object is shown once, the near ones first.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

MOST = 20_000  # parts in all
DEEPEST = 8  # steps from the root
WIDEST = 64  # elements of one container; the others are like them

LEAVES: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, bytearray, memoryview, range, slice, type(Ellipsis)}
)
Step = tuple[str, Any, int]  # path, value, depth


def walk(root: Any, name: str, *, most: int = MOST, deepest: int = DEEPEST) -> Iterator[Step]:
    """The root and everything on it."""
    seen: set[int] = set()
    ahead: deque[Step] = deque([(name, root, 0)])
    left = most
    while ahead and left:
        left -= 1
        path, value, depth = ahead.popleft()
        if type(value) not in LEAVES:
            if id(value) in seen:
                continue
            seen.add(id(value))
        yield path, value, depth
        if depth < deepest:
            ahead.extend((path + step, part, depth + 1) for step, part in islice(parts(value), most))


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, each with the step to it."""
    kind = type(value)
    if kind in LEAVES or isinstance(value, (type, types.ModuleType, types.CodeType, types.FrameType)):
        return
    if is_data(value):
        return
    yield from _elements(value, kind)
    if kind is types.FunctionType:
        yield from _closure(value)
    elif kind in (types.MethodType, types.BuiltinMethodType):
        yield ".__self__", value.__self__
        if kind is types.MethodType:
            yield from _closure(value.__func__)
    elif issubclass(kind, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    yield from attributes(value)


def is_data(value: Any) -> bool:
    """Whether a value is one block of numbers: tensor, array, frame."""
    module = type(value).__module__ or ""
    return hasattr(type(value), "dtype") or module.startswith(("pandas", "polars", "pyarrow"))


def _elements(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    if issubclass(kind, dict):
        for key, part in list(islice(dict.items(value), WIDEST)):
            yield f"[{key!r}]"[:80] if type(key) in LEAVES else "[…]", part
    elif issubclass(kind, (list, tuple)):
        take = list.__getitem__ if issubclass(kind, list) else tuple.__getitem__
        for place, part in enumerate(take(value, slice(0, WIDEST))):
            yield f"[{place}]", part
    elif issubclass(kind, (deque, set, frozenset)):
        base: Any = next(each for each in (deque, set, frozenset) if issubclass(kind, each))
        for part in list(islice(base.__iter__(value), WIDEST)):
            yield "{…}", part


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Instance attributes, from dictionary and slots."""
    kind = type(value)
    for cls in kind.__mro__:
        members = vars(cls)
        holder = members.get("__dict__")
        if type(holder) is types.GetSetDescriptorType:
            found = holder.__get__(value, kind)
            if isinstance(found, dict):
                yield from ((f".{name}", part) for name, part in list(found.items()) if not _is_ours(name))
        if "__slots__" not in members:
            continue
        for name, member in list(members.items()):
            if type(member) is types.MemberDescriptorType:
                try:
                    yield f".{name}", member.__get__(value, kind)
                except AttributeError:
                    continue  # not assigned


def _is_ours(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("_penstock")


def _closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f".<{name}>", cell.cell_contents
        except ValueError:
            continue  # not assigned yet


def used_globals(kind: type) -> Iterator[tuple[str, Any]]:
    """Module-level names that the methods of a class use, and attributes of the class itself.

    Functions of the same module that they call are looked into as well, one step further.
    """
    seen: set[str] = set()
    for cls in kind.__mro__:
        for name, member in list(vars(cls).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            function = getattr(function, "__wrapped__", function)
            if isinstance(function, types.FunctionType):
                for path, value in _used_by(function, seen):
                    yield path, value
                    if isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
                        yield from _used_by(value, seen)
            if not name.startswith("__") and not isinstance(member, types.FunctionType):
                yield f"{cls.__qualname__}.{name}", member


def _used_by(function: types.FunctionType, seen: set[str]) -> Iterator[tuple[str, Any]]:
    for used in function.__code__.co_names:
        if used in function.__globals__ and used not in seen:
            seen.add(used)
            yield f"{function.__module__}.{used}", function.__globals__[used]
