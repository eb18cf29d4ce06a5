"""Which sample does not fit its batch, and in which field.

Called after a collate function has failed: compares every sample with the first, by structure, type,
dtype and shape, and names the first difference with the dataset's index. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LISTED = 8  # indices that fit on a line


def describe_odd(samples: Any, indices: Any) -> str:
    """One sentence about the sample that does not fit, or which samples were in the batch."""
    try:
        samples = list(samples)
        for position, sample in enumerate(samples):
            for path, found, expected in _differences(sample, samples[0], ""):
                field = f" field {path}" if path else ""
                return (
                    f"{_name(indices, position)} does not fit:{field} is {found}, "
                    f"in {_short_name(indices, 0)} it is {expected}"
                )
    except Exception:  # noqa: BLE001 - samples are the user's objects; a note must not fail
        return ""
    known = [str(index) for place in range(len(samples)) if (index := _index(indices, place)) is not None]
    listed = ", ".join(known[:_LISTED])
    return f"sample indices: {listed}{', …' if len(known) > _LISTED else ''}" if known else ""


def _name(indices: Any, position: int) -> str:
    index = _index(indices, position)
    if index is None:  # an iterable dataset has none
        return f"the sample at position {position} in its batch"
    return f"sample index: {index} (position {position} in its batch)"


def _short_name(indices: Any, position: int) -> str:
    index = _index(indices, position)
    return f"the sample at position {position}" if index is None else f"sample {index}"


def _differences(sample: Any, first: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if sample is None:
        yield path, "None", "None" if first is None else _form(first)
    elif _form(sample) != _form(first):
        yield path, _form(sample), _form(first)
    elif getattr(sample, "dtype", None) != getattr(first, "dtype", None):
        yield path, f"of dtype {sample.dtype}", f"of dtype {first.dtype}"
    elif isinstance(sample, Mapping):
        for key in first:
            yield from _differences(sample[key], first[key], f"{path}[{key!r}]")
    elif isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
        for place, (one, other) in enumerate(zip(sample, first, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")


def _form(value: Any) -> str:
    """Type, and what must agree for values of that type to be collated."""
    name = type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{name} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{name} with keys {sorted(map(repr, value))}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return f"{name} of length {len(value)}"
    return name


def _index(indices: Any, position: int) -> Any:
    try:
        return indices[position]
    except (IndexError, KeyError, TypeError):
        return None
