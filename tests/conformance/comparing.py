"""What "the same batches, bit for bit" means, and how two loaders are held against each other."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import os
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader as TorchLoader


def assert_same(got: Any, expected: Any, at: str = "batch") -> None:
    """Fail unless both are equal in type, structure and every bit of every array."""
    assert type(got) is type(expected), f"{at}: {type(got)} is not {type(expected)}"
    for kinds, compare in _COMPARISONS.items():
        if isinstance(expected, kinds):
            compare(got, expected, at)
            return
    if dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        _assert_same_mapping(vars(got), vars(expected), at)
    else:
        assert got == expected, f"{at}: {got!r} is not {expected!r}"


def _assert_same_mapping(got: Any, expected: Any, at: str) -> None:
    assert list(got) == list(expected), f"{at}: keys {list(got)} are not {list(expected)}"
    if isinstance(expected, collections.defaultdict):
        assert got.default_factory is expected.default_factory, at
    for key in expected:
        assert_same(got[key], expected[key], f"{at}[{key!r}]")


def _assert_same_sequence(got: Any, expected: Any, at: str) -> None:
    assert len(got) == len(expected), f"{at}: {len(got)} parts, not {len(expected)}"
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert_same(one, other, f"{at}[{number}]")


def _assert_same_number(got: Any, expected: Any, at: str) -> None:
    assert np.asarray(got).tobytes() == np.asarray(expected).tobytes(), f"{at}: {got}, {expected}"


def _assert_same_exception(got: Any, expected: Any, at: str) -> None:
    assert got.args == expected.args, at


def _assert_same_array(got: np.ndarray, expected: np.ndarray, at: str) -> None:
    assert got.dtype == expected.dtype, f"{at}: {got.dtype} is not {expected.dtype}"
    assert got.shape == expected.shape, f"{at}: {got.shape} is not {expected.shape}"
    if expected.dtype.hasobject:
        assert_same(got.ravel().tolist(), expected.ravel().tolist(), at)
    elif expected.dtype == np.longdouble:  # its last six bytes are padding
        assert np.array_equal(got, expected), f"{at}: other values"
    else:
        assert got.tobytes() == expected.tobytes(), f"{at}: other values"


def _assert_same_tensor(got: torch.Tensor, expected: torch.Tensor, at: str) -> None:
    for trait in ("dtype", "layout", "device", "requires_grad", "is_nested", "is_quantized"):
        mine, other = getattr(got, trait), getattr(expected, trait)
        assert mine == other, f"{at}: {trait} {mine} is not {other}"
    if expected.is_nested:
        for number, (one, other) in enumerate(zip(got.unbind(), expected.unbind(), strict=True)):
            _assert_same_tensor(one, other, f"{at}[{number}]")
        return
    assert got.shape == expected.shape, f"{at}: {got.shape} is not {expected.shape}"
    if expected.is_meta:
        return
    if expected.layout is torch.strided:
        _assert_same_values(got, expected, at)
    else:
        _assert_same_values(got.to_dense(), expected.to_dense(), at)


def _assert_same_values(got: torch.Tensor, expected: torch.Tensor, at: str) -> None:
    if expected.is_quantized:
        assert got.qscheme() == expected.qscheme(), at
        assert _bits(got.dequantize()) == _bits(expected.dequantize()), at
        got, expected = got.int_repr(), expected.int_repr()
    assert _bits(got) == _bits(expected), f"{at}: other values"


def _bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.as_subclass(torch.Tensor).reshape(-1).view(torch.uint8).numpy().tobytes()


_COMPARISONS: dict[Any, Any] = {
    torch.Tensor: _assert_same_tensor,
    np.ndarray: _assert_same_array,
    Mapping: _assert_same_mapping,
    (list, tuple, collections.deque): _assert_same_sequence,
    BaseException: _assert_same_exception,
    (float, complex, np.inexact): _assert_same_number,
}


def seeded(seed: int = 7) -> torch.Generator:
    """A new generator: two loaders given the same seed must agree."""
    return torch.Generator().manual_seed(seed)


def seed_everything() -> None:
    """Put the three global generators into one known state."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def random_state() -> Any:
    """Where the three global generators of this process are."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


_expected: dict[str, Any] = {}  # by test, whichever loader it runs on


def assert_agrees_with_torch(loader_class: Any, make: Any, *, epochs: int = 1) -> None:
    """Build one loader of each class with `make`; their epochs must agree bit for bit."""
    test = re.sub(r"\[(torch|penstock)", "[", os.environ["PYTEST_CURRENT_TEST"])
    if test not in _expected:
        # Copied, so that what is remembered holds no shared memory of torch's.
        _expected[test] = copy.deepcopy(_run(TorchLoader, make, epochs))
    batches, state = _run(loader_class, make, epochs)
    assert_same(batches, _expected[test][0])
    assert_same(state, _expected[test][1], "global random state")


def _run(loader_class: Any, make: Any, epochs: int) -> Any:
    seed_everything()
    loader = make(loader_class)
    return [list(loader) for _ in range(epochs)], random_state()


@contextlib.contextmanager
def iterating(loader: Any) -> Iterator[Any]:
    """An iterator whose workers are gone at the end of the block, wherever it stands.

    Left to the garbage collector, as after an exception, torch's iterator takes five seconds.
    """
    iterator = iter(loader)
    try:
        yield iterator
    finally:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


def descendants(pid: int | None = None) -> set[int]:
    """Process ids of all children, their children and so on."""
    found: set[int] = set()
    for listing in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        try:
            children = [int(child) for child in listing.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found |= {child} | descendants(child)
    return found


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status
