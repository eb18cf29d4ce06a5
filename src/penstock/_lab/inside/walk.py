"""What hangs on an object, with the attribute path to each part. Bounded, and runs no code of the user's.

Reads attributes straight from their descriptors: no property, no `__getattr__`, no `__iter__` of the user's
classes is called. Each object is shown once, the near ones first.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from penstock._lab.inside.frames import is_user_code

MOST = 20_000  # parts in all
DEEPEST = 8  # steps from the root
WIDEST = 64  # elements of one container; the others are like them
_CLASSES_DEEP = 3  # steps from the root to an object whose class is looked at
_CODE_DEEP = 2  # steps from a class to functions and classes that it uses, and from these to theirs
_DECORATORS = 8  # of one function
_GLOBALS_MOST, _GLOBALS_DEEP = 300, 3  # of what hangs on one global
# Our own observer hangs on what it has wrapped; it is no part of the program.
_OURS = __name__.partition(".inside")[0]
_OPAQUE = frozenset({"logging", "threading", "_thread", "asyncio", "multiprocessing", "argparse", "weakref"})

LEAVES: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, bytearray, memoryview, range, slice, type(Ellipsis)}
)
# How classes of Python's and of C's hold the dictionary of an object.
_DICTIONARY = (types.GetSetDescriptorType, types.MemberDescriptorType)
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
    if is_data(value) or (kind.__module__ or "").startswith(_OURS):
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
        if isinstance(holder, _DICTIONARY):
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


def reachable(root: Any, name: str, *, most: int = MOST) -> Iterator[Step]:
    """The root and everything on it; then, at depths below zero, what hangs on globals that its classes use.

    Of the standard library's own objects among these (loggers, threads) the inside is nobody's business.
    """
    classes: dict[type, None] = {}
    for path, value, depth in walk(root, name, most=most):
        if depth <= _CLASSES_DEEP and not isinstance(value, type) and is_users(type(value)):
            classes[type(value)] = None
        yield path, value, depth
    for kind in classes:
        for used in used_globals(kind):
            if _is_opaque(used.value):
                yield used.path, used.value, -1
                continue
            found = walk(used.value, used.path, most=_GLOBALS_MOST, deepest=_GLOBALS_DEEP)
            yield from ((path, value, -1 - depth) for path, value, depth in found)


def _is_opaque(value: Any) -> bool:
    module = type(value).__module__ or ""
    return module != "builtins" and module.partition(".")[0] in _OPAQUE


class Used(NamedTuple):
    """A name outside of an object that the methods of its class use."""

    path: str
    holder: Any  # the namespace of a module, a class, or a cell of a decorator's closure
    name: str
    value: Any


def used_globals(kind: type) -> Iterator[Used]:
    """Module-level names that the methods of a class use, what their decorators keep, and class attributes.

    Functions, classes and objects of the user's among them are looked into as well, some steps further.
    """
    seen: set[str] = set()
    ahead: deque[tuple[Any, int]] = deque([(kind, 0)])
    while ahead:
        code, depth = ahead.popleft()
        for used in _used_by(code):
            if used.path in seen:
                continue
            seen.add(used.path)
            yield used
            is_code = isinstance(used.value, (type, types.FunctionType))
            further = used.value if is_code else type(used.value)
            if depth < _CODE_DEEP and is_users(further):
                ahead.append((further, depth + 1))


def is_users(code: Any) -> bool:
    """Whether a class or function is the user's own."""
    name = getattr(code, "__module__", None) or ""
    if name not in sys.modules:
        return True  # of a file that was run and not imported
    # A notebook has no file, nor have the modules that are built in.
    file = getattr(sys.modules[name], "__file__", None) or ("<stdin>" if name == "__main__" else None)
    return file is not None and is_user_code(file)


def _used_by(code: Any) -> Iterator[Used]:
    if isinstance(code, types.FunctionType):
        yield from _used_by_function(code)
        return
    for cls in code.__mro__:
        for name, member in list(vars(cls).items()):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, types.FunctionType):
                yield from _used_by_function(function)
            if not name.startswith("__") and not isinstance(member, types.FunctionType):
                yield Used(f"{cls.__qualname__}.{name}", cls, name, member)


def _used_by_function(function: Any) -> Iterator[Used]:
    """Of a function that decorators wrap: what each of them keeps, and what the innermost uses."""
    for _ in range(_DECORATORS):
        inner = getattr(function, "__wrapped__", None)
        if not isinstance(inner, types.FunctionType):
            break
        yield from _kept_by(function)
        function = inner
    for name in _names(function.__code__):
        if name in function.__globals__:
            path = f"{function.__module__}.{name}"
            yield Used(path, function.__globals__, name, function.__globals__[name])


def _names(code: types.CodeType) -> dict[str, None]:
    """Names that code uses, also in its comprehensions and inner functions; in order, each once."""
    found = dict.fromkeys(code.co_names)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= _names(part)
    return found


def _kept_by(wrapper: types.FunctionType) -> Iterator[Used]:
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=False))
    for step, value in _closure(wrapper):
        yield Used(f"{wrapper.__qualname__}{step}", cells[step[2:-1]], "cell_contents", value)
