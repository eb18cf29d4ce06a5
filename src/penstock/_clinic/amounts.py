"""Amounts in words, for messages and evidence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
_EXACT = 10  # below that many units, one decimal


def size(nbytes: float) -> str:
    """A number of bytes: "64 MB", "1.5 GB", "512 bytes". Units are powers of 1024, as mounts are set."""
    for unit, name in _UNITS:
        if nbytes >= unit:
            amount = nbytes / unit
            text = f"{amount:.0f}" if amount >= _EXACT else f"{amount:.1f}".removesuffix(".0")
            return f"{text} {name}"
    return f"{nbytes:.0f} bytes"


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 batch", "3 batches", "2,000 samples"."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{number:,} {plural}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Some names, and how many more: "a, b, c and 7 more"."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
