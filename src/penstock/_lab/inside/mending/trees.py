"""Change leaves of a sample or a batch, containers kept; and parts of a dataset, in their places."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock._lab.inside.batches import is_plain_object
from penstock._lab.inside.walk import attributes, is_users, reachable, used_globals

_DEEPEST = 12


def change_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same tree with every leaf changed; an object is opened, then asked for like a leaf."""
    return _Changing(change).of(value)


class _Changing:
    """One walk through a tree; an object that is met again, or holds itself, is opened once."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change
        self._opened: dict[int, tuple[Any, Any]] = {}  # old and new: the old one keeps its identity taken

    def of(self, value: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            return value
        if isinstance(value, dict):
            return _like(value, {key: self.of(part, depth + 1) for key, part in value.items()})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.of(part, depth + 1) for part in value))
        if isinstance(value, (list, tuple)):
            return _like(value, [self.of(part, depth + 1) for part in value])
        return self._change(self._object(value, depth) if is_plain_object(value) else value)

    def _object(self, value: Any, depth: int) -> Any:
        """A copy of it with its attributes changed; itself where none is, or it cannot be copied."""
        if id(value) in self._opened:
            return self._opened[id(value)][1]
        self._opened[id(value)] = value, value
        old = vars(value)
        changed = {name: self.of(part, depth + 1) for name, part in old.items()}
        if all(changed[name] is part for name, part in old.items()):
            return value
        try:
            new = copy.copy(value)
            vars(new).update(changed)
        except Exception:  # noqa: BLE001 - a class of the user's own, which may refuse
            return value
        self._opened[id(value)] = value, new
        return new


def _like(old: Any, new: Any) -> Any:
    if type(old) in (dict, list):
        return new
    try:
        return type(old)(new)
    except Exception:  # noqa: BLE001 - a container of the user's own, with another __init__
        return new


def swap(root: Any, wanted: Callable[[Any], bool], make: Callable[[Any], Any]) -> int:
    """Replace parts of a dataset, wherever an attribute, container or global holds them; how many.

    What is in several places is made once.
    """
    made: dict[int, Any] = {}
    swapped = 0
    for holder, key, value in list(places(root)):
        if not wanted(value):
            continue
        if id(value) not in made:
            made[id(value)] = make(value)
        new = made[id(value)]
        if new is not value and put(holder, key, new):
            swapped += 1
    return swapped


def places(root: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Every (holder, key, value) under a root, and among the globals it uses, where one can be replaced."""
    kinds: set[type] = set()
    for _, value, _ in reachable(root, "dataset"):
        if isinstance(value, (dict, list)):
            pairs: Any = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((value, key, part) for key, part in list(pairs)[:1_000])
        # The type is asked: an object may have no `__class__` for those who ask (numpy's BagObj).
        if not issubclass(type(value), (type, Mapping, list)):
            yield from ((value, step[1:], part) for step, part in attributes(value))
        if type(value) not in kinds:
            kinds.add(type(value))
            if is_users(type(value)):
                yield from ((used.holder, used.name, used.value) for used in used_globals(type(value)))


def put(holder: Any, key: Any, value: Any) -> bool:
    """Set an element, an attribute or a global; whether that went."""
    try:
        if isinstance(holder, (dict, list)):
            holder[key] = value
        elif isinstance(holder, type):
            setattr(holder, key, value)
        else:
            object.__setattr__(holder, key, value)
    except (AttributeError, TypeError):
        return False
    return True
