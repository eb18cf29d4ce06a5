"""Bad samples on their way home, and `loader.errors`, where they are kept.

Guarantees:

* The count and the indices are exact, however many there are.
* Memory is bounded: the first MOST_TRACEBACKS keep their traceback, the first MOST_RECORDS their record.
* A record holds texts and numbers only: nothing of the dataset stays alive through it.

`describe` and `key_of` run in the worker, everything else on the consumer's thread.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

MOST_TRACEBACKS = 1000
MOST_RECORDS = 100_000
LONGEST_MESSAGE = 2000  # characters
LONGEST_TRACEBACK = 8000
LONGEST_INDEX = 200
_DEEPEST_SUBSET = 8

IN_QUARANTINE = "Quarantined"  # stands where the exception's type would: nobody has tried the sample


@dataclass(frozen=True, slots=True)
class BadSample:
    """One sample that could not be had."""

    index: int | str | None  # what the sampler drew; its repr when it is neither; None in a stream
    key: str | None  # what the dataset calls it, such as the path of its file
    exception: str  # the name of the type
    message: str
    traceback: str
    worker: int
    attempt: int  # how often it was tried; 0 when it was not touched
    time: float  # seconds since 1970
    action: str  # what was done about it: "raise", "skip" or "replace"

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def as_tuple(self) -> tuple[Any, ...]:
        """The fields in order: the form in which it travels."""
        return tuple(self.as_dict().values())


class BadSamples:
    """Every bad sample that a loader has met; a sequence of `BadSample` in the order of delivery."""

    def __init__(self) -> None:
        self.count = 0
        self._records: list[BadSample] = []
        self._indices: dict[int | str, None] = {}  # in order, each once

    def __repr__(self) -> str:
        return f"<{self.count} bad samples, indices {_few(self.indices)}>"

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[BadSample]:
        return iter(self._records)

    def __getitem__(self, place: int) -> BadSample:
        return self._records[place]

    @property
    def indices(self) -> list[int | str]:
        """The indices of the bad samples, each once, in the order in which they were first met."""
        return list(self._indices)

    def add(self, sample: BadSample) -> None:
        """Note a bad sample."""
        self.count += 1
        if sample.index is not None:
            self._indices[sample.index] = None
        if self.count > MOST_RECORDS:
            return
        self._records.append(sample if self.count <= MOST_TRACEBACKS else replace(sample, traceback=""))


def describe(error: BaseException, **facts: Any) -> BadSample:
    """The record of a sample that failed with this exception; `facts` are the other fields."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return BadSample(
        exception=type(error).__name__,
        message=_text_of(error)[:LONGEST_MESSAGE],
        traceback=text[-LONGEST_TRACEBACK:],
        **facts,
    )


def plain_index(index: Any) -> int | str | None:
    """The index as a number or a text: those of numpy and torch become numbers, others their repr."""
    if index is None or isinstance(index, str):
        return index
    try:
        return int(index.__index__())
    except Exception:  # noqa: BLE001 - no number; an index is whatever the user's sampler makes
        return _repr_of(index)[:LONGEST_INDEX]


def key_of(dataset: Any, index: Any) -> str | None:
    """What the dataset calls this sample: `penstock_key(index)`, or the path as ImageFolder keeps it."""
    try:
        for _ in range(_DEEPEST_SUBSET):
            if hasattr(dataset, "penstock_key") or not _is_subset(dataset):
                break
            dataset, index = dataset.dataset, dataset.indices[index]
        if hasattr(dataset, "penstock_key"):
            key = dataset.penstock_key(index)
            return None if key is None else str(key)[:LONGEST_MESSAGE]
        key = dataset.samples[index][0] if hasattr(dataset, "samples") else dataset.paths[index]
        return os.fsdecode(key)[:LONGEST_MESSAGE]  # refuses what is no path
    except Exception:  # noqa: BLE001 - a dataset without such names, or with others under them
        return None


def _is_subset(dataset: Any) -> bool:
    return hasattr(dataset, "dataset") and hasattr(dataset, "indices")  # torch's Subset


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        return "(no text: its __str__ failed)"


def _repr_of(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the user's own __repr__
        return f"(a {type(value).__name__})"


def _few(indices: list[int | str]) -> str:
    listed = ", ".join(map(str, indices[:8]))
    return f"[{listed}, …]" if len(indices) > 8 else f"[{listed}]"  # noqa: PLR2004 - what fits on a line
