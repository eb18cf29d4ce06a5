"""A place in the user's source: apart from `record.py`, for `penstock lint` has no time for its classes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's source."""

    file: str
    line: int
    symbol: str = ""
    column: int = field(default=0, compare=False)  # from 1; 0 where it is not known
