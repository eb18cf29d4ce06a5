"""Unified diffs, read: which lines of which files become which. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class DiffError(ValueError):
    """A text that is no unified diff."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines to find and lines to put in their place, without line ends."""

    at: int  # 1-based line of the first old line; the line before, when there are no old lines
    old: tuple[str, ...]
    new: tuple[str, ...]


def split(patch: str) -> list[tuple[str, list[Hunk]]]:
    """The hunks of each file that a diff names. Raises DiffError."""
    files: list[tuple[str, list[Hunk]]] = []
    rows = iter(patch.split("\n"))
    for row in rows:
        if row.startswith("--- "):
            files.append((row[4:].split("\t")[0].strip(), []))
            if not next(rows, "").startswith("+++ "):
                raise DiffError("it is no unified diff: a line '+++' is missing")
        elif found := HUNK.match(row):
            if not files:
                raise DiffError("it is no unified diff: it names no file")
            counts = int(found[2] or 1), int(found[3] or 1)
            files[-1][1].append(_hunk(int(found[1]), counts, rows))
    if not any(hunks for _, hunks in files):
        raise DiffError("it changes nothing")
    return files


def _hunk(at: int, counts: tuple[int, int], rows: Iterator[str]) -> Hunk:
    """Read one hunk: its header says how many old and new lines there are."""
    old: list[str] = []
    new: list[str] = []
    while (len(old), len(new)) != counts:
        row = next(rows, None)
        mark = "" if row is None else row[:1] or " "
        if row is None or mark not in " +-\\":
            raise DiffError("it is no unified diff: a hunk ends too early")
        if mark in " -":
            old.append(row[1:])
        if mark in " +":
            new.append(row[1:])
    return Hunk(at, tuple(old), tuple(new))
