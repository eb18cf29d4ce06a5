"""What a batch is made of, and whether the program still holds it. Reads; runs no code of the user's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from penstock._lab.inside.walk import LEAVES, attributes, is_data, is_users
from penstock._lab.inside.weighing import weight

_MOST = 5_000  # values of one batch that are looked at
_MANY, _PICKLED = 1_000, 9  # values from which on their number is reckoned; bytes of a number in a pickle
_WATCHED = 2  # tensors of a batch that are watched for being kept
_LONG = 64  # numbers of a list
_SHALLOW = frozenset({int, float, bool, complex, type(None)})


def leaves(batch: Any, most: int = _MOST) -> Iterator[Any]:
    """What a batch holds, containers opened, in order; at most so many."""
    ahead: list[Any] = [batch]
    left = most
    while ahead and left:
        left -= 1
        value = ahead.pop()
        if isinstance(value, Mapping):
            ahead.extend(reversed(list(value.values())[:left]))
        elif isinstance(value, (list, tuple)) and not _is_flat(value):
            ahead.extend(reversed(value[:left]))
        elif is_plain_object(value):
            ahead.extend(reversed(list(vars(value).values())))
        elif _has_slots(value):
            ahead.extend(reversed([part for _, part in attributes(value)]))
        else:
            yield value


def is_plain_object(value: Any) -> bool:
    """Whether it holds its parts as attributes: a dataclass, a sample of the user's own class."""
    kind = type(value)
    if kind in _SHALLOW or isinstance(value, (str, bytes, bytearray)) or hasattr(value, "dtype"):
        return False
    return type(getattr(value, "__dict__", None)) is dict and not isinstance(value, type)


def _has_slots(value: Any) -> bool:
    """Whether it is of a class of the user's own that holds its parts in slots."""
    kind = type(value)
    return kind not in LEAVES and not is_data(value) and hasattr(kind, "__slots__") and is_users(kind)


def _is_flat(value: Any) -> bool:
    """Whether it is a long list of numbers: one thing, too long to be looked at number by number."""
    return len(value) > _LONG and {type(value[0]), type(value[-1])} <= _SHALLOW


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch's."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_dense(value: Any) -> bool:
    """Whether a tensor lies in ordinary memory, in one storage."""
    return value.layout is sys.modules["torch"].strided and value.device.type == "cpu"


def nbytes(value: Any) -> int:
    """The bytes that a tensor or array shows."""
    try:
        size = value.nbytes
    except (AttributeError, RuntimeError):  # no numbers, or a sparse tensor
        return 0
    return size if isinstance(size, int) else 0


def facts(batch: Any, size: int | None, *, is_batched: bool) -> dict[str, Any]:
    """How many tensors and bytes; what is no tensor goes through a pipe, pickled."""
    tensors = total = pickled = looked_at = 0
    rows = None
    for value in leaves(batch):
        looked_at += 1
        if is_tensor(value):
            tensors += 1
            total += nbytes(value)
            if rows is None and value.dim():
                rows = int(value.shape[0])
        else:
            pickled += _pickled(value)
    if looked_at > _MANY:  # there may be more than are looked at one by one
        pickled = max(pickled, weight(batch)[0] * _PICKLED)
    return {
        "tensors": tensors,
        "nbytes": total,
        "pickled": pickled,
        "samples": _samples(batch, rows, size, is_batched=is_batched),
    }


def _samples(batch: Any, rows: int | None, size: int | None, *, is_batched: bool) -> int:
    if not is_batched:
        return 1
    if isinstance(batch, (list, tuple)) and (rows is None or _is_uncollated(batch, rows, size)):
        rows = len(batch)
    if rows is None:
        return size or 1
    return rows if size is None else min(rows, size)


def _is_uncollated(batch: Any, rows: int, size: int | None) -> bool:
    """Whether a list is one of samples, and not of fields that each have all samples."""
    return rows != size and (len(batch) == size or all(isinstance(each, Mapping) for each in batch))


def _pickled(value: Any) -> int:
    """About as many bytes as pickle would make of it."""
    if isinstance(value, (list, tuple)):
        return len(value) * _number(value[len(value) // 2])
    if isinstance(value, (str, bytes, bytearray)):
        return len(value) + 6
    size = nbytes(value)
    return size + 120 if size else 6


def _number(value: Any) -> int:
    if isinstance(value, int):
        return 2 if 0 <= value < 1 << 8 else 3 if 0 <= value < 1 << 16 else 5  # an opcode, then bytes
    return 9 if isinstance(value, float) else 6


def references(batch: Any) -> list[Any]:
    """Weak references to the memory of a batch's first tensors."""
    torch: Any = sys.modules["torch"]
    weak: Any = torch.multiprocessing.reductions.StorageWeakRef
    found = []
    for value in leaves(batch, 64):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            found.append(weak(value.untyped_storage()))
            if len(found) == _WATCHED:
                break
    return found


def kept(held: list[Any]) -> list[Any]:
    """Those of these batches that are still alive."""
    return [batch for batch in held if any(not reference.expired() for reference in batch)]
