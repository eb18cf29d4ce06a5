"""What samples are made with that has changed since the first pass, when persistent workers were started.

That is attributes of the dataset and of the collate function, and plain values of globals and classes that
their code uses. Plain values are compared, and the contents of containers and arrays that are not large; of
functions and objects near the top, whether they are still the same. With workers nobody but the program
touches the consumer's own copy.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import types
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock._lab.inside.mentions import mentioned
from penstock._lab.inside.walk import Step, Used, is_users, used_globals, walk

_SIMPLE = (int, float, bool, str, type(None))
_CONTAINERS = (list, tuple, dict, set)
_MOST = 200  # attributes that are looked at, and as many values outside
_NEAR = 2  # steps from the dataset to an object that may have been replaced
_PARTS, _DEEP = 2_000, 6  # of the dataset that are walked through, and of the collate function
_GLOBAL_PARTS, _GLOBAL_DEEP = 100, 2
_LARGEST = 16 << 20  # bytes of an array whose contents are compared
_ELEMENTS = 50_000  # of a container, and of those in it, that are compared
_SEEN = "_penstock_attributes"
_KEY, _ELEMENT = re.compile(r"\['([^']*)'\]"), re.compile(r"\['([^']*)'\]$")
_SUBSCRIPTS = re.compile(r"(\[[^]]*\])+$")  # behind an attribute's name

Mark = tuple[int, int]  # number of elements, checksum of contents; -1 where there is none
Told = dict[str, tuple[Any, Mark]]


class Changed(NamedTuple):
    """What the program has changed, by path: "0 → 1"; and which of it samples may depend on."""

    all: dict[str, str]
    used: tuple[str, ...]


def changed(loader: Any) -> Changed:
    """What is different now; nothing at the first call, or with workers made anew: it is remembered."""
    before = loader.__dict__.get(_SEEN)
    is_anew = loader.persistent_workers and getattr(loader, "_iterator", None) is None
    if before is None or is_anew:
        loader.__dict__[_SEEN] = told(loader.dataset, loader.collate_fn)
        return Changed({}, ())
    now = told(loader.dataset, loader.collate_fn)
    found = _compared(before, now)
    names = mentioned(_makers(loader.dataset, loader.collate_fn)) if found else frozenset()
    return Changed(found, tuple(path for path in found if _is_mentioned(path, names, before, now)))


def news(before: Told, dataset: Any, collate_fn: Any) -> dict[str, str]:
    """What has changed since it was `told`, by path: "0 → 1"."""
    return _compared(before, told(dataset, collate_fn))


def _compared(before: Told, now: Told) -> dict[str, str]:
    both = [path for path in now if path in before and not _is_same(before[path], now[path])]
    # A part of something that was replaced is told with it.
    return {
        path: f"{_said(before[path])} → {_said(now[path])}"[:200]
        for path in both
        if not any(path != other and path.startswith((f"{other}.", f"{other}[")) for other in both)
    }


def _is_mentioned(path: str, names: frozenset[str], before: Told, now: Told) -> bool:
    """Whether code that makes samples mentions what has changed: attribute, and key of a dictionary.

    A dictionary of which that code names no key at all is gone through, or its keys are data.
    """
    name = _SUBSCRIPTS.sub("", path).rpartition(".")[2].strip("<>")
    if name not in names:
        return False
    own = _ELEMENT.search(path)
    container = path[: own.start()] if own else path
    inside = {place: key for place in before | now if (key := _key(place, container))}
    if names.isdisjoint(inside.values()):
        return True
    others = {key for place, key in inside.items() if _is_news(place, before, now)}
    return not others or not names.isdisjoint({own[1]} if own else others)


def _is_news(path: str, before: Told, now: Told) -> bool:
    return path not in before or path not in now or not _is_same(before[path], now[path])


def _key(path: str, container: str) -> str:
    """The last key that leads to what lies in a dictionary; empty for what lies elsewhere."""
    keys = _KEY.findall(path, len(container)) if path.startswith(f"{container}[") else ()
    return str(keys[-1]) if keys else ""


def told(dataset: Any, collate_fn: Any) -> Told:
    """By path: the value, which is kept so that no other gets its identity, and what changes in place."""
    found, others = Told(), Told()
    for path, value, depth in parts(dataset, collate_fn):
        is_near = 0 < depth <= _NEAR and "[" not in path
        if (isinstance(value, _SIMPLE) or is_near) and len(found) < _MOST:
            found[path] = (value, _mark(value))
    # Of what others use too, plain values alone: a container there may be a cache, or a record that grows.
    for used in outside(dataset, collate_fn):
        for path, value, _ in walk(used.value, used.path, most=_GLOBAL_PARTS, deepest=_GLOBAL_DEEP):
            if isinstance(value, _SIMPLE) and len(others) < _MOST:
                others[path] = (value, _mark(value))
    return found | others


def parts(dataset: Any, collate_fn: Any) -> Iterator[Step]:
    """Everything on the dataset and on the collate function."""
    yield from walk(dataset, "dataset", most=_PARTS, deepest=_DEEP)
    if getattr(collate_fn, "__self__", None) is not dataset:  # else it was shown
        yield from walk(collate_fn, "collate_fn", most=_PARTS, deepest=_DEEP)


def outside(dataset: Any, collate_fn: Any) -> Iterator[Used]:
    """Globals and attributes of classes that the code of both uses."""
    seen: set[str] = set()
    for code in _code(dataset, collate_fn):
        for used in used_globals(code):
            is_code = isinstance(used.value, (type, types.ModuleType, types.FunctionType))
            if used.path not in seen and not is_code:
                seen.add(used.path)
                yield used


def _makers(dataset: Any, collate_fn: Any) -> Iterator[Any]:
    """Objects and functions that make samples and batches, or are at hand there."""
    yield from (value for _, value, _ in parts(dataset, collate_fn))


def _code(dataset: Any, collate_fn: Any) -> Iterator[Any]:
    """Classes and functions of the user's that make samples and batches."""
    found: dict[Any, None] = {}
    for _, value, _ in parts(dataset, collate_fn):
        code = value if isinstance(value, types.FunctionType) else type(value)
        if not isinstance(value, type) and is_users(code):
            found[code] = None
    yield from found


def _mark(value: Any) -> Mark:
    """What of a thing changes when it is changed in place."""
    if isinstance(value, _CONTAINERS):
        return len(value), _checksum(value)
    if 0 < getattr(value, "nbytes", 0) <= _LARGEST and hasattr(value, "dtype"):
        with contextlib.suppress(Exception):  # an array on another device, or of objects
            import numpy as np

            array = value.numpy() if hasattr(value, "numpy") else value
            return -1, zlib.crc32(np.ascontiguousarray(array).tobytes())
    return -1, -1


def _checksum(container: Any) -> int:
    """Of the plain values in containers, whatever else they hold; no code of the user's is called."""
    found = 0
    ahead: deque[Any] = deque([container])
    left = _ELEMENTS
    while ahead:
        each = ahead.popleft()
        kind = type(each)
        if kind in _SIMPLE:
            found = zlib.crc32(repr(each).encode("utf-8", "replace"), found)
        elif kind in (list, tuple, dict):  # the order of a set is another in every process
            parts = itertools.chain.from_iterable(each.items()) if kind is dict else each
            taken = list(itertools.islice(parts, max(0, left)))
            left -= len(taken)
            ahead.extend(taken)
    return found


def _is_same(before: tuple[Any, Mark], now: tuple[Any, Mark]) -> bool:
    (old, old_mark), (new, new_mark) = before, now
    if isinstance(old, _SIMPLE) and isinstance(new, _SIMPLE):
        return type(old) is type(new) and (old == new or repr(old) == repr(new))
    if isinstance(old, types.MethodType) and isinstance(new, types.MethodType):
        return old.__func__ is new.__func__ and old.__self__ is new.__self__
    return old is new and old_mark == new_mark


def _said(value_and_mark: tuple[Any, Mark]) -> str:
    value, (count, checksum) = value_and_mark
    if isinstance(value, _SIMPLE):
        return repr(value)[:80]
    if isinstance(value, _CONTAINERS):
        return f"{type(value).__name__} of {count} with the checksum {checksum:08x}"
    if checksum >= 0:
        return f"values with the checksum {checksum:08x}"
    return str(getattr(value, "__qualname__", None) or f"a {type(value).__name__}")[:80]
