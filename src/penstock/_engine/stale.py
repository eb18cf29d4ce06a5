"""Attributes of the dataset that were changed after persistent workers had been given it.

What is compared is plain: numbers, strings, None and tuples of them, in the dataset's own dictionary and in
those of the objects it holds, and functions and callable objects that were replaced. Arrays, tensors, lists,
dictionaries and the values of multiprocessing are not judged: they may be shared, or grow as a cache does.
Nor are values that a class computes when first asked: a private name or a cached property that was None or
not there.

Pure but for `pack` and `apply`.
"""

from __future__ import annotations

import pickle
import reprlib
from collections.abc import Callable, Iterator
from functools import cached_property
from types import MethodType, ModuleType
from typing import Any, NamedTuple

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LONGEST = 64  # elements of a tuple that are looked at
_MISSING = object()

Path = tuple[str, ...]


class Change(NamedTuple):
    """An attribute that is no longer what the workers have."""

    path: Path
    old: Any
    new: Any

    @property
    def name(self) -> str:
        """The attribute, as it is written in code."""
        return ".".join(("dataset", *self.path))


def snapshot(dataset: Any) -> dict[Path, Any]:
    """What can be compared later, by path."""
    taken: dict[Path, Any] = {}
    for name, value in _own(dataset):
        if _is_judged(value):
            taken[(name,)] = value
        if not isinstance(value, (type, ModuleType)):
            taken.update(((name, inner), part) for inner, part in _own(value) if _is_judged(part))
    return taken


def changes(dataset: Any, before: dict[Path, Any], now: dict[Path, Any]) -> list[Change]:
    """What has changed between two snapshots of this dataset."""
    return [
        Change(path, None if old is _MISSING else old, value)
        for path, value in now.items()
        if not _is_same(old := before.get(path, _MISSING), value)
        and not ((old is None or old is _MISSING) and _is_computed(_owner(dataset, path), path[-1]))
        and not (old is _MISSING and len(path) > 1 and not _had(before, path[0]))  # in an object that is new
    ]


def _had(before: dict[Path, Any], name: str) -> bool:
    return any(path[0] == name for path in before)


def _own(value: Any) -> Iterator[tuple[str, Any]]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 - slots, proxies
        return iter(())
    return iter(list(found.items()) if type(found) is dict else ())


def _is_judged(value: Any) -> bool:
    return _is_plain(value) or (callable(value) and not isinstance(value, type))


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return len(value) <= _LONGEST and all(_is_plain(part) for part in value)
    return type(value) in _PLAIN


def _is_same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if _is_plain(old) and _is_plain(new):
        return type(old) is type(new) and (old == new or repr(old) == repr(new))  # nan differs from itself
    if isinstance(old, MethodType) and isinstance(new, MethodType):
        return old.__self__ is new.__self__ and old.__func__ is new.__func__
    return False


def _owner(dataset: Any, path: Path) -> Any:
    owner = dataset
    for name in path[:-1]:
        owner = dict(_own(owner)).get(name)
    return owner


def _is_computed(owner: Any, name: str) -> bool:
    return name.startswith("_") or isinstance(getattr(type(owner), name, None), cached_property)


# ---- words --------------------------------------------------------------------------------------

_ASIDE = (
    "Keep it where workers see it (`multiprocessing.Value`, a tensor after `share_memory_()`), or leave "
    "persistent_workers out"
)


def warning(change: Change) -> str:
    """What is said when nothing is changed."""
    return f"{_told(change)} {_ASIDE}, or pass cure=True."


def cured(change: Change) -> str:
    """What is said when workers were given the new values."""
    return f"{_told(change)} cure=True: they were given the new value, as at the beginning of every epoch."


def not_sent(change: Change, reason: str) -> str:
    """What is said of an attribute that cannot be sent."""
    return f"{_told(change)} cure=True could not send it: {reason}. {_ASIDE}."


def _told(change: Change) -> str:
    return (
        f"[PS303] `{change.name}` is {reprlib.repr(change.new)}, but persistent workers still have "
        f"{reprlib.repr(change.old)}: they were given the dataset when they were started."
    )


# ---- the cure -----------------------------------------------------------------------------------

Parcel = tuple[Path, bytes]


def pack(change: Change, dumps: Callable[[Any], bytes]) -> Parcel:
    """The new value on its way to workers; raises what pickling raises."""
    return change.path, dumps(change.new)


def apply(dataset: Any, parcels: tuple[Parcel, ...]) -> None:
    """Set the new values. Called in the worker, between two epochs."""
    for path, data in parcels:
        owner = _owner(dataset, path)
        if owner is not None:
            object.__getattribute__(owner, "__dict__")[path[-1]] = pickle.loads(data)
