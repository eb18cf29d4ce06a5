"""Which findings the user wants to see: `select`, `ignore`, and comments in the source. Pure.

A pattern is a code (`PS301`), the beginning of one (`PS3`), or the slug of a cause (`rng-repeated`); `*` is
all of them. In the source, `# penstock: ignore[PS301, rng-repeated]` speaks for its own line, and bare
`# penstock: ignore` for every code on that line.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import PurePath

EVERY = "*"

_COMMENT = re.compile(r"#\s*penstock:\s*ignore(?:\[(?P<codes>[^\]]*)\])?", re.IGNORECASE)
_CODE = re.compile(r"(?i)ps\d{0,3}")


def comments(text: str) -> dict[int, frozenset[str]]:
    """Line number to the patterns that are ignored there, from comments in a source text.

    Source that cannot be split into tokens is searched line by line, so that a broken file is not noisier.
    """
    if "penstock:" not in text:
        return {}
    found: dict[int, frozenset[str]] = {}
    for line, comment in _comment_tokens(text):
        match = _COMMENT.search(comment)
        if match:
            found[line] = found.get(line, frozenset()) | _patterns(match["codes"])
    return found


def _comment_tokens(text: str) -> list[tuple[int, str]]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return [(number, line) for number, line in enumerate(text.splitlines(), start=1) if "#" in line]
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def _patterns(codes: str | None) -> frozenset[str]:
    if codes is None:
        return frozenset({EVERY})
    return frozenset(word.strip() for word in codes.split(",") if word.strip())


def matches(pattern: str, code: str, cause: str) -> bool:
    """Whether a pattern speaks of a finding with this code and cause."""
    if pattern == EVERY or pattern.lower() == cause:
        return True
    return bool(_CODE.fullmatch(pattern)) and code.upper().startswith(pattern.upper())


def is_chosen(code: str, cause: str, *, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> bool:
    """Whether a code is asked for: an empty `select` is all, and `ignore` has the last word."""
    chosen = tuple(select)
    if chosen and not any(matches(pattern, code, cause) for pattern in chosen):
        return False
    return not any(matches(pattern, code, cause) for pattern in ignore)


def ignored_in(path: str, per_file: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The patterns that `per-file-ignores` names for one file, by its name or by its path."""
    name, posix = PurePath(path).name, PurePath(path).as_posix()
    hits = (
        patterns
        for glob, patterns in per_file.items()
        if fnmatch(name, glob) or fnmatch(posix, glob) or fnmatch(posix, f"*/{glob}")
    )
    return tuple(pattern for patterns in hits for pattern in patterns)
