"""The values that every room speaks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Backend = Literal["process", "thread", "inline", "auto"]
Birth = Literal["forked", "clean"]
OnIterableCrash = Literal["raise", "replay"]
Action = Literal["raise", "skip", "replace", "retry"]  # what becomes of a bad sample


@dataclass(frozen=True, slots=True)
class Ticket:
    """The work for one batch: its number in the epoch, and what the sampler drew for it."""

    number: int
    indices: Any  # whatever the user's sampler yields; None for iterable datasets
