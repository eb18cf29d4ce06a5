"""Generators of random numbers: those of the process, and those that a dataset keeps.

A `Rng` is one of them, of whatever library, with three verbs: reset to a seed, save, restore. `find` looks
for those under a dataset: in attributes, slots, dicts, lists, tuples, partials, bound methods and closures.
It runs no code of the user's: no property, no `__getattr__`, no `__iter__`.

Guarantees:

* Each generator is found once, however many ways lead to it; those of the process itself are left out.
* Its key depends on the way to it from the dataset alone: it is the same in every process that has an equal
  dataset, also when another generator was dropped on the journey there.
* The search is bounded: DEEPEST steps from the dataset, containers of up to WIDEST elements (larger ones are
  data), a look at MOST values in all, the near ones first.
"""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

DEEPEST = 10
WIDEST = 1_000
MOST = 20_000

_HIGH = 32  # numpy's oldest generator takes 32 bits of a seed: the upper ones, for torch's takes the lower
_SPREAD = 0xDA942042E4DD58B5_9E3779B97F4A7C15  # odd: spreads a seed over 128 bits without a collision
_BITS_128 = (1 << 128) - 1


class Rng(NamedTuple):
    """One generator, and what can be done with it."""

    owner: Any  # kept, so that nothing else gets its identity
    key: int  # 64 bits; of the way to it
    reset: Callable[[int], Any]  # to a seed of 64 bits
    save: Callable[[], Any]
    restore: Callable[[Any], Any]


def of_the_process() -> list[Rng]:
    """The global generators: of `random`, of numpy, of torch on the CPU."""
    return [rng for owner in _globals() if (rng := describe(owner, "")) is not None]


def find(root: Any) -> list[Rng]:
    """The generators under `root`, nearest first."""
    seen = {id(owner) for owner in _globals()}
    found: list[Rng] = []
    ahead: deque[tuple[Any, str, int]] = deque([(root, "", 0)])
    left = MOST
    while ahead:
        value, path, depth = ahead.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        rng = describe(value, path)
        if rng is not None:
            if rng.owner is value or id(rng.owner) not in seen:  # two Generators may share one source
                found.append(rng)
            seen.add(id(rng.owner))
        elif depth < DEEPEST and left > 0:
            for name, part in _parts(value):
                left -= 1
                if type(part) not in _LEAVES:
                    ahead.append((part, f"{path}/{name}", depth + 1))
    return found


def describe(value: Any, path: str) -> Rng | None:
    """The Rng of a generator that can be reset, or None for anything else."""
    kind = type(value)
    rng = None
    if issubclass(kind, random.Random):
        if not issubclass(kind, random.SystemRandom):  # the kernel's randomness has no seed
            rng = Rng(value, _key(path), value.seed, value.getstate, value.setstate)
    elif issubclass(kind, torch.Generator):
        if value.device.type == "cpu":
            rng = Rng(value, _key(path), value.manual_seed, value.get_state, value.set_state)
    elif issubclass(kind, np.random.RandomState):
        rng = _of_random_state(value, _key(path))
    elif issubclass(kind, np.random.Generator):
        rng = _of_bit_generator(value.bit_generator, _key(path))
    elif issubclass(kind, np.random.BitGenerator):
        rng = _of_bit_generator(value, _key(path))
    return rng


def _globals() -> tuple[Any, ...]:
    # The modules' functions are bound methods of one instance each.
    return random.random.__self__, np.random.random_sample.__self__, torch.default_generator  # type: ignore[attr-defined]


def _key(path: str) -> int:
    return int.from_bytes(blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


# ---- numpy ----------------------------------------------------------------------------------------


def _of_random_state(value: np.random.RandomState, key: int) -> Rng:
    save = functools.partial(value.get_state, legacy=False)
    state: Any = save()
    if state["bit_generator"] == "MT19937":
        return Rng(value, key, lambda seed: value.seed(seed >> _HIGH), save, value.set_state)
    source = getattr(np.random, state["bit_generator"])

    def reset(seed: int) -> None:
        value.set_state({**source(seed).state, "has_gauss": 0, "gauss": 0.0})

    return Rng(value, key, reset, save, value.set_state)


def _of_bit_generator(source: Any, key: int) -> Rng:
    return Rng(source, key, _reset_of(source), lambda: source.state, functools.partial(_set_state, source))


def _set_state(source: Any, state: Any) -> None:
    source.state = state


def _reset_of(source: Any) -> Callable[[int], Any]:
    """How to reset a bit generator; a new one is the general way, and slow."""
    kind = type(source)
    if kind is np.random.MT19937:
        legacy = np.random.RandomState(source)
        return lambda seed: legacy.seed(seed >> _HIGH)
    if kind in (np.random.PCG64, np.random.PCG64DXSM):
        start: Any = kind(0).state

        def reset(seed: int) -> None:
            start["state"]["state"] = seed * _SPREAD & _BITS_128
            source.state = start

        return reset
    return lambda seed: _set_state(source, kind(seed).state)


# ---- the search -----------------------------------------------------------------------------------


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """What an object holds, each with the name of the step; runs no code of the object's."""
    kind = type(value)
    if kind in _LEAVES or issubclass(kind, (type, types.ModuleType, np.ndarray, torch.Tensor)):
        return
    if issubclass(kind, dict) and dict.__len__(value) <= WIDEST:
        yield from (
            (key if type(key) in (str, int) else place, part)
            for place, (key, part) in enumerate(list(dict.items(value)))
        )
    elif issubclass(kind, (list, tuple)) and kind.__len__ in _LENGTHS and len(value) <= WIDEST:
        iterate = list.__iter__ if issubclass(kind, list) else tuple.__iter__
        yield from enumerate(iterate(value))
    elif issubclass(kind, deque) and deque.__len__(value) <= WIDEST:
        yield from enumerate(islice(deque.__iter__(value), WIDEST))
    elif kind is types.FunctionType:
        yield from _closure(value)
    elif kind in (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType):
        yield "self", value.__self__
    elif issubclass(kind, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    yield from _attributes(value, kind)


def _closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not assigned yet


def _attributes(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """Straight from the descriptors: `vars` and `getattr` could end up in a property or a `__getattr__`."""
    for cls in kind.__mro__:
        members = vars(cls)
        holder = members.get("__dict__")
        if type(holder) is types.GetSetDescriptorType:
            attributes = holder.__get__(value, kind)
            if isinstance(attributes, dict):
                yield from list(attributes.items())
        if "__slots__" not in members:
            continue
        for name, member in list(members.items()):
            if type(member) is types.MemberDescriptorType:
                try:
                    yield name, member.__get__(value, kind)
                except AttributeError:
                    continue  # not assigned


_LEAVES = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray, memoryview, range})
_LENGTHS = (list.__len__, tuple.__len__)
