"""What a dataset keeps that changes from batch to batch: random generators, containers that grow."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict
from typing import Any

from penstock._lab.inside.walk import is_users, reachable

_MOST_RNGS = 16
_MOST_CONTAINERS = 64
_MOST_SLOTS = 50_000  # of a list that is counted after each batch that is told
_CONTAINERS = (dict, list, set)


class Lazy:
    """An attribute that objects of one class fill when it is first asked for: None until then."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owners: list[Any] = []

    def filled(self) -> int:
        """How many have it by now."""
        return sum(owner.__dict__.get(self.name) is not None for owner in self.owners)

    def empty(self) -> None:
        """As if nobody had asked."""
        for owner in self.owners:
            owner.__dict__[self.name] = None


class State:
    """Follows one dataset."""

    def __init__(self, dataset: Any, collate_fn: Any = None) -> None:
        self._rngs: list[tuple[str, Any]] = []
        self._containers: list[tuple[str, Any]] = []
        self._lazy: dict[str, Lazy] = {}
        self._find(dataset)
        self._find(collate_fn, "collate_fn")
        self._containers += list(self._lazy.items())[: _MOST_CONTAINERS - len(self._containers)]
        self._slots = {path for path, value in self._containers if _has_slots(value)}
        self._first = {path: self._sized(path, value) for path, value in self._containers}
        self._before: dict[str, str] = {}

    def _find(self, root: Any, name: str = "dataset") -> None:
        numpy: Any = sys.modules.get("numpy")
        torch: Any = sys.modules["torch"]
        kinds: list[Any] = [random.Random, torch.Generator]
        if numpy is not None:
            kinds += [numpy.random.Generator, numpy.random.RandomState]
        seen: set[int] = set(map(id, _own()))
        for path, value, _ in reachable(root, name, most=5_000):
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, tuple(kinds)):
                if len(self._rngs) < _MOST_RNGS and not isinstance(value, random.SystemRandom):
                    self._rngs.append((path, value))
            elif _grows(value) and len(self._containers) < _MOST_CONTAINERS:
                self._containers.append((path, value))
            else:
                self._note_lazy(value)

    def _note_lazy(self, value: Any) -> None:
        kind = type(value)
        own = getattr(value, "__dict__", None)
        if type(own) is not dict or not is_users(kind):
            return
        for name, held in own.items():
            if held is None:
                self._lazy.setdefault(f"{kind.__name__}.{name}", Lazy(name)).owners.append(value)

    def before(self, *, is_told: bool) -> None:
        """A batch begins."""
        self._before = self._states() if is_told else {}

    def after(self) -> dict[str, Any]:
        """FetchSeen's fields."""
        caches = {path: self._sized(path, value) for path, value in self._containers}
        grown = {path: size for path, size in caches.items() if size > self._first[path]}
        return {"rngs": self._before, "caches": grown}

    def shrink(self) -> None:
        """Empty what has grown, down to what it held at first."""
        for path, value in self._containers:
            first = self._first[path]
            if self._sized(path, value) <= first:
                continue
            if path in self._slots:
                value[:] = [None] * len(value)
            else:
                _empty(value, first)

    def grown(self) -> list[dict[str, Any]]:
        """Things: the containers that grow."""
        return [
            {
                "path": path,
                "kind": "cache",
                "type": type(value).__qualname__,
                "count": self._sized(path, value),
            }
            for path, value in self._containers
            if self._sized(path, value) > self._first[path]
        ]

    def _sized(self, path: str, value: Any) -> int:
        """Elements; of a list that was made of empty slots, those that are filled."""
        if path in self._slots:
            return sum(part is not None for part in list.__iter__(value))
        return _size(value)

    def _states(self) -> dict[str, str]:
        found = {path: _fingerprint(rng) for path, rng in self._rngs}
        for name, rng in zip(("random", "numpy.random", "torch"), _own(), strict=False):
            if rng is not None:
                found[name] = _fingerprint(rng)
        return found


def _own() -> tuple[Any, ...]:
    """The global generators, which torch seeds."""
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules["torch"]
    own: Any = random.random
    own_numpy = numpy.random.random_sample.__self__ if numpy is not None else None
    return own.__self__, own_numpy, torch.default_generator


def _grows(value: Any) -> bool:
    if isinstance(value, _CONTAINERS):
        return True
    return hasattr(value, "cache_info") and hasattr(value, "cache_parameters")


def _has_slots(value: Any) -> bool:
    """Whether it is a list of nothing but None, to be filled later."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_SLOTS:
        return False
    return all(part is None for part in list.__iter__(value))


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return dict.__len__(value)
    if isinstance(value, list):
        return list.__len__(value)
    if isinstance(value, set):
        return set.__len__(value)
    if isinstance(value, Lazy):
        return value.filled()
    return int(value.cache_info().currsize)


def _empty(value: Any, first: int) -> None:
    """Down to the `first` elements that it had."""
    if isinstance(value, dict):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict  # it keeps an order beside the table
        for key in list(value)[first:]:
            kind.pop(value, key, None)
    elif isinstance(value, list):
        del value[first:]
    elif isinstance(value, set):
        value.clear()
    elif isinstance(value, Lazy):
        value.empty()
    else:
        value.cache_clear()


def _fingerprint(rng: Any) -> str:
    from penstock._engine import rng_objects

    return rng_objects.fingerprint(rng_objects.state(rng)).hex()
