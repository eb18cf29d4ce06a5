"""What a dataset stores: how long each part is, whether its content changes, what lies past its length."""

from __future__ import annotations

import sys
import time
from typing import Any

from penstock._lab.inside.batches import is_tensor
from penstock._lab.inside.walk import LEAVES, is_data, walk

_MOST = 3_000  # parts that are looked at
_MOST_BYTES = 128 << 20  # of all contents that are read
_LARGEST = 64 << 20  # of one of them
_DEEPEST = 6
_SIZES = 64
_SIZES_DEEP = 2
_FAR = 1 << 24  # past the length: an index that no finite dataset has
_SHORT = 2_000  # elements of a list whose content is read
_PAST = 4  # samples past the length that are looked at
_PROBE_S = 1.0
_ENDS = (IndexError, KeyError)
_WRAPPED = 8  # datasets of torch's, one around another
_TWICE, _SEED = 3, 20_011  # samples that are made twice, from this seed

Contents = dict[str, tuple[int, str]]  # by path: identity of the object, digest of what it holds


def contents(dataset: Any) -> Contents:
    """The contents of tensors, arrays, pictures and short lists of numbers, where they are quick to read."""
    from penstock._lab.inside.samples import Sample

    found: Contents = {}
    left = _MOST_BYTES
    for path, value, _ in walk(dataset, "dataset", most=_MOST, deepest=_DEEPEST):
        size = _nbytes(value)
        if not size or size > min(left, _LARGEST):
            continue
        left -= size
        read = Sample(has_digest=True)
        read.form(value)
        found[path] = (id(value), read.digest())
    return found


def changed(before: Contents, dataset: Any) -> list[str]:
    """Paths whose content is another one now, in the same object as before."""
    now = contents(dataset) if before else {}
    return [
        path
        for path, (identity, digest) in now.items()
        if path in before and before[path][0] == identity and before[path][1] != digest
    ][:8]


def drifts(dataset: Any) -> bool:
    """Whether a sample has another content the second time, chance being the same both times.

    Asked where something stored has changed: is that what samples are made of, or statistics that are kept?
    """
    try:
        return any(_with_luck(dataset, index) != _with_luck(dataset, index) for index in range(_TWICE))
    except Exception:  # noqa: BLE001 - the user's code, asked once more than it expects
        return False


def _with_luck(dataset: Any, index: int) -> str:
    """The digest of a sample; the global generators begin with the same seed each time."""
    import random

    from penstock._lab.inside.samples import describe

    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    random.seed(_SEED)
    torch.manual_seed(_SEED)
    if numpy is not None:
        numpy.random.seed(_SEED)
    return str(describe(dataset[index], has_digest=True)["digest"])


def _nbytes(value: Any) -> int:
    if is_tensor(value):
        is_plain = value.device.type == "cpu" and value.layout is sys.modules["torch"].strided
        return int(value.nbytes) if is_plain else 0
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        return int(getattr(value, "nbytes", 0))
    if hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size"):  # PIL
        width, height = value.size
        return int(width * height * 4)
    return _plain_nbytes(value)


def _plain_nbytes(value: Any) -> int:
    """About the bytes of a short list or dictionary of plain values; 0 for any other."""
    if type(value) not in (list, dict) or not 0 < len(value) <= _SHORT:
        return 0
    parts = value.values() if type(value) is dict else value
    return 16 * len(value) if all(type(part) in LEAVES for part in list(parts)) else 0


def own(dataset: Any) -> Any:
    """The dataset that the user wrote, below those of torch that are put around it; of several the first."""
    for _ in range(_WRAPPED):
        if not type(dataset).__module__.startswith("torch."):
            return dataset
        held = vars(dataset)
        parts = held.get("datasets")
        dataset = parts[0] if isinstance(parts, (list, tuple)) and parts else held.get("dataset")
    return None


def sizes(dataset: Any) -> dict[str, int]:
    """By path: how many elements each list, dictionary, array or frame near the top has."""
    part = own(dataset)
    inner = {} if part is None or part is dataset else _sizes(part, "part")
    return {**_sizes(dataset, "dataset"), **inner}


def _sizes(root: Any, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for path, value, depth in walk(root, name, most=400, deepest=_SIZES_DEEP):
        if depth and (is_data(value) or isinstance(value, (list, tuple, dict))):
            shape = getattr(value, "shape", None)
            size = shape[0] if shape else len(value) if isinstance(value, (list, tuple, dict)) else 0
            if size and len(found) < _SIZES:
                found[path] = int(size)
    return found


# ---- past the length ----------------------------------------------------------------------------


def probe(dataset: Any) -> dict[str, Any]:
    """Whether a map-style dataset has samples past its length, and where they end.

    Asked of the user's own dataset: one that joins others, or takes a part of them, knows what it was told.
    "reach" is the first index that raises IndexError, None when every index gives a sample, when something
    else is raised or when it takes too long; "past" are the digests of the first samples past the length.
    """
    try:
        return _probe(dataset)
    except Exception:  # noqa: BLE001 - the user's code, asked for what it need not have
        return {}


def _probe(dataset: Any) -> dict[str, Any]:
    from penstock._lab.inside.samples import describe

    part = own(dataset)
    inner = {} if part is dataset else {"part": type(part).__qualname__, "part_length": len(part)}
    return {**inner, **_past(part, describe)}


def _past(dataset: Any, describe: Any) -> dict[str, Any]:
    length = len(dataset)
    deadline = time.monotonic() + _PROBE_S
    usual = _form(dataset, length, describe)
    past: list[str] = []
    for index in range(length, length + _PAST):
        try:
            told = describe(dataset[index], has_digest=True)
        except _ENDS:
            return {"reach": index, "past": past}
        if usual is not None and told["shape"] != usual:
            return {"reach": index, "past": past}  # what is left at the end of a recording: no whole sample
        past.append(told["digest"])
        if time.monotonic() > deadline:
            return {"reach": None, "past": []}
    return {"reach": _end(dataset, length + _PAST, deadline), "past": past}


def _form(dataset: Any, length: int, describe: Any) -> Any:
    """The form of its samples; None where they have none in common."""
    indices = {0, length // 2, length - 1} if length else ()
    forms = {describe(dataset[index], has_digest=False)["shape"] for index in indices}
    return forms.pop() if len(forms) == 1 else None


def _end(dataset: Any, low: int, deadline: float) -> int | None:
    """The first index that raises, from `low` on, by halves; None when there is none."""
    high = low + _FAR
    if _has(dataset, high):
        return None
    while low < high:
        if time.monotonic() > deadline:
            return None
        middle = (low + high) // 2
        if _has(dataset, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _has(dataset: Any, index: int) -> bool:
    try:
        dataset[index]
    except _ENDS:
        return False
    return True
