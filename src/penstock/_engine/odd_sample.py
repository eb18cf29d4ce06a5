"""Which sample does not fit its batch, and in which field.

Called after a collate function has failed: compares every sample with the first, by structure, type,
dtype and shape, and names the first difference with the dataset's index. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def describe_odd(samples: Any, indices: Any) -> str:
    """One sentence about the sample that does not fit, or which samples were in the batch."""
    try:
        samples = list(samples)
        for position, sample in enumerate(samples):
            for path, found, expected in _differences(sample, samples[0], ""):
                field = f" field {path}" if path else ""
                return (
                    f"sample index: {_index(indices, position)} (position {position} in its batch) "
                    f"does not fit:{field} is {found}, in sample {_index(indices, 0)} it is {expected}"
                )
    except Exception:  # noqa: BLE001 - samples are the user's objects; a note must not fail
        return ""
    listed = ", ".join(str(_index(indices, position)) for position in range(min(8, len(samples))))
    return f"sample indices: {listed}{', …' if len(samples) > 8 else ''}" if samples else ""  # noqa: PLR2004


def _differences(sample: Any, first: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if sample is None:
        yield path, "None", "None" if first is None else _form(first)
    elif _form(sample) != _form(first):
        yield path, _form(sample), _form(first)
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
        return "?"
