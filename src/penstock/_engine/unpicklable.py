"""The part of an object that cannot be pickled, by its attribute path.

`dataset.transform.fn` says more than "cannot pickle '_io.TextIOWrapper' object". Walks down from the
object into the first part that fails by itself, until no part of it fails alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_DEEPEST = 12  # levels; a cycle or an endless wrapper must end somewhere
_WIDEST = 200  # parts of one level that are tried


def find_unpicklable(value: Any, name: str, dumps: Callable[[Any], object] | None = None) -> tuple[str, str]:
    """The path to the guilty part and what it is: ("batch['x'].fn", "is a generator")."""
    dumps = dumps or _dumps
    path = name
    for _ in range(_DEEPEST):
        guilty = next((part for part in _parts(value) if not _works(part[1], dumps)), None)
        if guilty is None:
            break
        path, value = path + guilty[0], guilty[1]
    return path, f"is {_article(type(value).__name__)}"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    found = _all_parts(value)
    for _ in range(_WIDEST):
        part = next(found, None)
        if part is None:
            return
        yield part


def _all_parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    state = _state(value)
    if isinstance(state, Mapping):
        yield from ((f".{key}", part) for key, part in list(state.items()))
    for attribute in ("func", "__self__", "__wrapped__"):  # functools.partial and bound methods
        part = _attribute(value, attribute)
        if part is not None and part is not value:
            yield f".{attribute}", part
    yield from _closure(value)
    yield from _globals(value)


def _globals(value: Any) -> Iterator[tuple[str, Any]]:
    """What the methods of a `__main__` class use: such a class goes by value, and takes these along."""
    kind = type(value)
    if kind.__module__ != "__main__":
        return
    for method in vars(kind).values():
        code, names = getattr(method, "__code__", None), getattr(method, "__globals__", {})
        for name in code.co_names if code is not None else ():
            if name in names:
                yield f" (the global {name} that its class uses)", names[name]


def _state(value: Any) -> Any:
    try:
        if hasattr(type(value), "__getstate__") and type(value).__getstate__ is not getattr(
            object, "__getstate__", None
        ):
            return value.__getstate__()
        return getattr(value, "__dict__", {})
    except Exception:  # noqa: BLE001 - a __getstate__ of the user's
        return getattr(value, "__dict__", {})


def _closure(value: Any) -> Iterator[tuple[str, Any]]:
    code, cells = _attribute(value, "__code__"), _attribute(value, "__closure__")
    if code is None or not cells:
        return
    for variable, cell in zip(code.co_freevars, cells, strict=True):
        try:
            yield f" (its variable {variable})", cell.cell_contents
        except ValueError:
            continue  # not yet assigned


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a __getattr__ of the user's
        return None


def _works(value: Any, dumps: Callable[[Any], object]) -> bool:
    try:
        dumps(value)
    except Exception:  # noqa: BLE001 - whatever pickling user objects raises
        return False
    return True


def _dumps(value: Any) -> bytes:
    from multiprocessing.reduction import ForkingPickler

    stream = io.BytesIO()
    ForkingPickler(stream, 5).dump(value)
    return stream.getvalue()


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
