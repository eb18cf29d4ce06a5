"""Random generators kept in a dataset: where they are, whether workers repeat each other's numbers.

A `random.Random`, `numpy.random.Generator`, `RandomState` or `torch.Generator` in an attribute is copied into
every worker with one state: workers draw the same numbers, and fresh workers draw them again in the next
epoch. torch seeds the global generators of each worker, but not these.

What decides is `repeated`, which is pure. It accuses a generator only if samples use it: it must have moved
along its own sequence with at least two of the samples watched. One that the dataset seeds per sample jumps
instead, and one that was drawn from once (a permutation that all workers share) does not move again.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import random
from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

# How far the walk over a dataset goes.
MOST_OBJECTS = 500
MOST_ITEMS = 64
DEEPEST = 4

_MOVES = 2  # samples that must have used a generator: the first one may set up what all workers share
_TWISTS = 64  # blocks of 624 numbers that a Mersenne twister may have moved on between two samples
_STEPS = 4096  # numbers, for generators that tell nothing about their sequence
_MT = "MT19937"


class RngSign(NamedTuple):
    """What a worker saw of one generator."""

    path: str
    first: bytes  # digest of its state before the first sample
    last: bytes  # and after those that were watched
    is_used: bool
    is_reseeded: bool  # by us


# ---- deciding -----------------------------------------------------------------------------------


class Repeat(NamedTuple):
    """A generator that draws the same numbers in several workers, or in two epochs."""

    path: str
    workers: tuple[int, ...]


def repeated(
    reports: Mapping[int, tuple[RngSign, ...]], before: Mapping[str, bytes], *, in_step: bool
) -> Repeat | None:
    """The first generator that repeats, if any.

    Args:
        reports: what each worker saw.
        before: states that single workers began the last epoch with, by path.
        in_step: accuse only generators that are still in the same state after the samples watched. For
            iterable datasets: workers that draw together and then choose their shares must have equal
            generators.

    """
    seen: dict[tuple[str, bytes, bytes], list[int]] = {}
    for worker in sorted(reports):
        for sign in reports[worker]:
            if not sign.is_used or sign.is_reseeded:
                continue
            if before.get(sign.path) == sign.first:
                return Repeat(sign.path, (worker,))
            seen.setdefault((sign.path, sign.first, sign.last if in_step else b""), []).append(worker)
    for (path, *_), workers in seen.items():
        if len(workers) > 1:
            return Repeat(path, tuple(workers))
    return None


def reseeded(reports: Mapping[int, tuple[RngSign, ...]]) -> str | None:
    """The path of a generator that samples use and that we have seeded."""
    for signs in reports.values():
        for sign in signs:
            if sign.is_used and sign.is_reseeded:
                return sign.path
    return None


def warning(repeat: Repeat, *, is_iterable: bool) -> str:
    """What is said when nothing is changed."""
    if len(repeat.workers) > 1:
        what = f"the same numbers in workers {', '.join(map(str, repeat.workers))}"
        why = "it was in one state when they began, and their first samples draw from it"
    else:
        what = "the same numbers in every epoch"
        why = "it was in the state of the last epoch when this one began, and samples draw from it"
    or_else = "" if is_iterable else ", or pass cure=True"
    return (
        f"[PS302] `{repeat.path}` draws {what}: {why}. Seed it in `worker_init_fn` from "
        f"`torch.utils.data.get_worker_info().seed`{or_else}."
    )


def cured(path: str) -> str:
    """What is said when generators were seeded."""
    return (
        f"[PS302] `{path}` would draw the same numbers in every worker and epoch. cure=True: it was seeded "
        "in each worker from the seed of the epoch and the worker's number."
    )


# ---- in the worker ------------------------------------------------------------------------------


class RngWatch:
    """Follows the generators of a dataset through the first samples of a worker."""

    def __init__(self, found: list[tuple[str, Any]], reseeded: frozenset[str] = frozenset()) -> None:
        """`reseeded` has the paths of those that we have seeded."""
        self._found = found
        self._reseeded = reseeded
        self._first = [state(rng) for _, rng in found]
        self._last = list(self._first)
        self._moves = [0] * len(found)
        self._jumped = [False] * len(found)

    def see(self) -> None:
        """A sample was made."""
        for place, (_, rng) in enumerate(self._found):
            now, last = state(rng), self._last[place]
            if fingerprint(now) != fingerprint(last):
                self._moves[place] += 1
                self._jumped[place] |= not is_ahead(last, now)
            self._last[place] = now

    def signs(self) -> tuple[RngSign, ...]:
        """What was seen so far."""
        return tuple(
            RngSign(
                path,
                fingerprint(self._first[place]),
                fingerprint(self._last[place]),
                self._moves[place] >= _MOVES and not self._jumped[place],
                path in self._reseeded,
            )
            for place, (path, _) in enumerate(self._found)
        )


def find(dataset: Any) -> list[tuple[str, Any]]:
    """The generators that a dataset holds, with their paths, in a fixed order. Runs no user code."""
    found: list[tuple[str, Any]] = []
    queue: deque[tuple[str, Any, int]] = deque([("dataset", dataset, 0)])
    # The global ones are not the dataset's: torch seeds them.
    seen = {id(random._inst), id(np.random.mtrand._rand), id(torch.default_generator)}  # noqa: SLF001
    left = MOST_OBJECTS
    while queue and left:
        left -= 1
        path, value, depth = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if _is_rng(value):
            found.append((path, value))
        elif depth < DEEPEST:
            queue.extend((path + step, part, depth + 1) for step, part in _parts(value))
    return found


def _is_rng(value: Any) -> bool:
    if isinstance(value, torch.Generator):
        return value.device.type == "cpu"
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    return isinstance(value, (np.random.Generator, np.random.RandomState))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) is dict:
        for key, part in itertools.islice(value.items(), MOST_ITEMS):
            yield f"[{key!r}]" if type(key) in (str, int) else "[…]", part
    elif type(value) in (list, tuple):
        for place, part in enumerate(value[:MOST_ITEMS]):
            yield f"[{place}]", part
    elif not isinstance(
        value, (ModuleType, type, FunctionType, torch.Tensor, np.ndarray, str, bytes, int, float)
    ):
        for name, part in attributes(value).items():
            yield f".{name}", part


def attributes(value: Any) -> dict[str, Any]:
    """The attributes that an object has in its own dictionary, found without running code of its class."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:  # noqa: BLE001 - slots, proxies
        return {}
    return found if type(found) is dict else {}


def state(rng: Any) -> Any:
    """The state of a generator; None when it cannot be had."""
    try:
        if isinstance(rng, torch.Generator):
            return "torch", rng.initial_seed(), rng.get_state().numpy().tobytes()
        if isinstance(rng, random.Random):
            _, numbers, _ = rng.getstate()
            return _MT, numbers[-1], np.array(numbers[:-1], np.uint32)
        if isinstance(rng, np.random.RandomState):
            return _numpy_state(rng.get_state(legacy=False))
        return _numpy_state(rng.bit_generator.state)
    except Exception:  # noqa: BLE001 - subclasses may do as they like
        return None


def _numpy_state(told: Any) -> Any:
    if told["bit_generator"] == _MT:
        return _MT, int(told["state"]["pos"]), told["state"]["key"].astype(np.uint32)
    return told["bit_generator"], told


def fingerprint(state: Any) -> bytes:
    """A state in 16 bytes."""
    return hashlib.blake2b(pickle.dumps(state, 5), digest_size=16).digest()


def is_ahead(before: Any, after: Any) -> bool:
    """Whether drawing from the first state leads to the second; False also when that cannot be told."""
    if before is None or after is None or before[0] != after[0]:
        return False
    if before[0] == "torch":
        return bool(before[1] == after[1])  # another seed is another sequence
    if before[0] == _MT:
        return _is_ahead_mt(before, after)
    for part in ("inc", "key"):  # PCG64 and Philox name their sequence
        if part in before[1]["state"]:
            return bool(np.array_equal(before[1]["state"][part], after[1]["state"][part]))
    return _is_ahead_by_steps(before[1], after)


def _is_ahead_mt(before: Any, after: Any) -> bool:
    twister = np.random.MT19937(0)
    key, position = before[2], before[1]
    for _ in range(_TWISTS):
        if np.array_equal(key, after[2]):
            return True
        twister.state = {"bit_generator": _MT, "state": {"key": key, "pos": position}}
        twister.random_raw(len(key) - position + 1, output=False)
        key, position = twister.state["state"]["key"], 1
    return False


def _is_ahead_by_steps(told: Any, after: Any) -> bool:
    kind = getattr(np.random, told["bit_generator"], None)
    if kind is None:
        return False
    copy = kind(0)
    copy.state = told
    wanted = fingerprint(after[1]["state"])
    for _ in range(_STEPS):
        copy.random_raw(1, output=False)
        if fingerprint(copy.state["state"]) == wanted:
            return True
    return False


def reseed(found: list[tuple[str, Any]], base_seed: int, worker: int) -> list[bytes]:
    """Give each generator a sequence of its own in this worker and epoch; return their new states."""
    for position, (_, rng) in enumerate(found):
        seed = np.random.SeedSequence([base_seed & (2**64 - 1), worker, position])
        number = int(seed.generate_state(1, np.uint64)[0])
        if isinstance(rng, torch.Generator):
            rng.manual_seed(number)
        elif isinstance(rng, random.Random):
            rng.seed(number)
        elif isinstance(rng, np.random.RandomState):
            rng.seed(seed.generate_state(4))
        else:
            rng.bit_generator.state = type(rng.bit_generator)(seed).state
    return [fingerprint(state(rng)) for _, rng in found]


def untouched(dataset: Any, found: list[tuple[str, Any]], states: list[bytes]) -> frozenset[str]:
    """The paths of generators that are still in the dataset, and in these states."""
    there = {path: id(rng) for path, rng in find(dataset)}
    return frozenset(
        path
        for (path, rng), given in zip(found, states, strict=True)
        if there.get(path) == id(rng) and fingerprint(state(rng)) == given
    )
