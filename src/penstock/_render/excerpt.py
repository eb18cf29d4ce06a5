"""The user's own line of source, and which part of it is meant. Pure, apart from reading the file."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock._lab.record import Site
from penstock._render.words import plain

Read = Callable[[str], list[str]]

LARGEST = 5_000_000  # bytes of a source file that is still read; larger ones are no source


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A line of source and which part of it is meant."""

    file: str
    line: int
    text: str  # safe to show, with its indentation
    start: int  # of the marked part, in characters of `text`
    stop: int


def read_lines(file: str) -> list[str]:
    """The lines of a source file; none when it cannot be read."""
    try:
        path = Path(file)
        if not path.is_file() or path.stat().st_size > LARGEST:
            return []
        # The tokenizer's reading honours a coding line; the cache is for tracebacks and may be stale.
        linecache.checkcache(file)
        return linecache.getlines(file)
    except (OSError, ValueError):  # ValueError: a NUL byte in the name
        return []


def excerpt(site: Site | None, *, read: Read = read_lines) -> Excerpt | None:
    """The line at a place; None when there is no such line."""
    if site is None or site.line < 1:
        return None
    source = read(site.file)
    if site.line > len(source) or not source[site.line - 1].strip():
        return None
    row = source[site.line - 1].rstrip()
    text = plain(row)
    # Characters that are spelled out move those behind them.
    column = len(plain(row[: site.column - 1])) if 0 < site.column <= len(row) else None
    start, stop = _marked(text, site.symbol, column)
    return Excerpt(file=site.file, line=site.line, text=text, start=start, stop=stop)


def _marked(text: str, symbol: str, column: int | None) -> tuple[int, int]:
    """What stands at the column, else the symbol, else a DataLoader made there, else the whole statement."""
    if column is not None:
        found = re.compile(r"\w+|\S").match(text, column)
        if found:
            return found.span()
    for word in (symbol.rpartition(".")[2], "DataLoader"):
        found = re.search(rf"(?<!\w){re.escape(plain(word))}(?!\w)", text) if word else None
        if found:
            return found.span()
    code = text.rstrip()
    return len(code) - len(code.lstrip()), len(code)


def shortened(shown: Excerpt, width: int) -> Excerpt:
    """The same within so many columns, cut around the marked part."""
    text, start, stop = shown.text, shown.start, shown.stop
    if len(text) <= width:
        return shown
    first = max(0, min(start - width // 4, len(text) - width)) if stop > width else 0
    cut = text[first : first + width]
    cut = ("…" + cut[1:]) if first else cut
    cut = (cut[:-1] + "…") if first + width < len(text) else cut
    return Excerpt(
        file=shown.file, line=shown.line, text=cut, start=start - first, stop=min(stop - first, width)
    )
