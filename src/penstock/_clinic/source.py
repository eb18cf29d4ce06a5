"""The user's own source, read once: what source rules ask of it. Needs no torch.

    read(paths)       the files named, each as it is
    read_text(text)   a source that is at hand
    find(paths)       the Python files and notebooks under some folders

Reading never raises: a file that is no Python, or cannot be decoded or opened, is in `Source.broken` with the
reason. Code cells of a notebook are joined into one text; lines of IPython (`%…`, `!…`) and cells in another
language become comments, so that line numbers stay. What the files mean is read by `_clinic/reading`.
"""

from __future__ import annotations

import ast
import io
import os
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SUFFIXES = (".py", ".ipynb")
# Folders that hold no source of the user's own.
SKIPPED = frozenset(
    {
        ".venv", "venv", ".git", ".hg", ".svn", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
        ".pytest_cache", ".ipynb_checkpoints", "node_modules", "site-packages", "build", "dist", ".eggs",
    }
)  # fmt: skip
# A generated file of many megabytes is nobody's training loop, and would take minutes.
LARGEST = 4_000_000  # bytes


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One parsed file."""

    path: str
    text: str
    tree: ast.Module

    @property
    def is_notebook(self) -> bool:
        """Whether it came from a notebook, whose classes no other process can import."""
        return self.path.endswith(".ipynb")


@dataclass(frozen=True, slots=True)
class Source:
    """The files of the program: the script first, then modules of its own that it imports."""

    files: tuple[SourceFile, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)  # path: why it could not be parsed


def read(paths: Iterable[str | os.PathLike[str]]) -> Source:
    """The files named, in that order; those that cannot be read are in `broken`."""
    files: list[SourceFile] = []
    broken: dict[str, str] = {}
    for path in dict.fromkeys(os.fspath(path) for path in paths):
        file = _file(path)
        if isinstance(file, str):
            broken[path] = file
        else:
            files.append(file)
    return Source(tuple(files), broken)


def read_text(text: str, path: str = "<stdin>") -> Source:
    """A source that is at hand as text."""
    file = _parsed(path, text)
    return Source((), {path: file}) if isinstance(file, str) else Source((file,))


def find(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """Files as they are named; of folders, every Python file and notebook in them, in order."""
    for path in paths:
        if not Path(path).is_dir():
            yield os.fspath(path)
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(each for each in folders if each not in SKIPPED)
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIXES))  # noqa: PTH118 - a text is wanted


# ---- one file -----------------------------------------------------------------------------------


def _file(path: str) -> SourceFile | str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        return error.strerror or type(error).__name__
    if len(content) > LARGEST:
        return f"larger than {LARGEST // 1_000_000} MB"
    text = _decoded(content)
    if path.endswith(".ipynb"):
        cells = _cells(text)
        return "it is no notebook" if cells is None else _parsed(path, cells)
    return _parsed(path, text)


def _decoded(content: bytes) -> str:
    """The text, by its own declaration; bytes that do not fit become question marks."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = content.decode("utf-8", "replace")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _parsed(path: str, text: str) -> SourceFile | str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in the user's text is not ours to tell
            return SourceFile(path, text, ast.parse(text))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__


def _cells(text: str) -> str | None:
    """The code of a notebook, cell after cell; None where it is none."""
    import json

    try:
        cells = json.loads(text)["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return None
    plain = [_plain(cell) for cell in code]
    legible = [_is_python(cell) for cell in plain]
    # A notebook without one legible cell is told as what it is: no Python.
    is_any = any(legible)
    return "\n".join(
        cell if fits or not is_any else _silenced(cell) for cell, fits in zip(plain, legible, strict=True)
    )


def _plain(cell: str) -> str:
    """A cell without lines of IPython and their continuations."""
    lines, is_going_on = [], False
    for line in cell.split("\n"):
        is_magic = _is_magic(line)
        if is_going_on:
            lines.append(f"# {line}")
        elif is_magic:
            lines.append(f"{line[: len(line) - len(line.lstrip())]}pass  # {line.lstrip()}")
        else:
            lines.append(line)
        is_going_on = (is_magic or is_going_on) and line.rstrip().endswith("\\")
    return "\n".join(lines)


def _is_magic(line: str) -> bool:
    return line.lstrip().startswith(("%", "!")) or line.rstrip().endswith("?")


def _is_python(cell: str) -> bool:
    """Whether a cell is Python, and not a script of the shell, say."""
    return isinstance(_parsed("", cell), SourceFile)


def _silenced(cell: str) -> str:
    return "\n".join(f"# {line}" for line in cell.split("\n"))
