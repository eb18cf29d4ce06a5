"""The user's own source, read once: what source rules ask of it. Pure; needs no torch."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One parsed file."""

    path: str
    text: str
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class Source:
    """The files of the program: the script first, then modules of its own that it imports."""

    files: tuple[SourceFile, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)  # path: why it could not be parsed
