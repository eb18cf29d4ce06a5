"""Attributes of the dataset that have changed since the first pass, when persistent workers were started.

Plain values are compared, and the contents of arrays that are not large; of functions, objects and containers
near the top, whether they are still the same and how many elements they have. With workers the consumer's own
copy is touched by nobody but the program.
"""

from __future__ import annotations

import contextlib
import types
import zlib
from typing import Any

from penstock._lab.inside.walk import walk

_SIMPLE = (int, float, bool, str, type(None))
_CONTAINERS = (list, tuple, dict, set)
_MOST = 200  # attributes that are looked at
_NEAR = 2  # steps from the dataset to an object that may have been replaced
_LARGEST = 16 << 20  # bytes of an array whose contents are compared
_SEEN = "_penstock_attributes"

Told = dict[str, tuple[Any, int]]


def changed(loader: Any) -> dict[str, str]:
    """What persistent workers do not know; empty at the first pass, which remembers how it was."""
    before = loader.__dict__.get(_SEEN)
    is_anew = loader.persistent_workers and getattr(loader, "_iterator", None) is None
    if before is None or is_anew:
        loader.__dict__[_SEEN] = told(loader.dataset)
        return {}
    return news(before, loader.dataset)


def news(before: Told, dataset: Any) -> dict[str, str]:
    """What has changed since it was `told`, by path: "0 → 1"."""
    now = told(dataset)
    both = [path for path in now if path in before and not _is_same(before[path], now[path])]
    # A part of something that was replaced is told with it.
    return {
        path: f"{_said(before[path])} → {_said(now[path])}"[:200]
        for path in both
        if not any(path != other and path.startswith((f"{other}.", f"{other}[")) for other in both)
    }


def told(dataset: Any) -> Told:
    """By path: the value, which is kept so that no other gets its identity, and its number of elements."""
    found: Told = {}
    for path, value, depth in walk(dataset, "dataset", most=2_000, deepest=4):
        is_near = 0 < depth <= _NEAR and "[" not in path
        if (isinstance(value, _SIMPLE) or is_near) and len(found) < _MOST:
            found[path] = (value, _mark(value))
    return found


def _mark(value: Any) -> int:
    """What of a thing changes when it is changed in place: the number of elements, an array's contents."""
    if isinstance(value, _CONTAINERS):
        return len(value)
    if 0 < getattr(value, "nbytes", 0) <= _LARGEST and hasattr(value, "dtype"):
        with contextlib.suppress(Exception):  # an array on another device, or of objects
            import numpy as np

            array = value.numpy() if hasattr(value, "numpy") else value
            return zlib.crc32(np.ascontiguousarray(array).tobytes())
    return -1


def _is_same(before: tuple[Any, int], now: tuple[Any, int]) -> bool:
    (old, old_count), (new, new_count) = before, now
    if isinstance(old, _SIMPLE) and isinstance(new, _SIMPLE):
        return type(old) is type(new) and (old == new or repr(old) == repr(new))
    if isinstance(old, types.MethodType) and isinstance(new, types.MethodType):
        return old.__func__ is new.__func__ and old.__self__ is new.__self__
    return old is new and old_count == new_count


def _said(value_and_count: tuple[Any, int]) -> str:
    value, count = value_and_count
    if isinstance(value, _SIMPLE):
        return repr(value)[:80]
    if isinstance(value, _CONTAINERS):
        return f"{type(value).__name__} of {count}"
    if count >= 0:
        return f"values with the checksum {count:08x}"
    return str(getattr(value, "__qualname__", None) or f"a {type(value).__name__}")[:80]
