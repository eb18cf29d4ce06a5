"""Apply the patches of a report to the user's files: exactly, with a backup, all of a file or nothing.

    diff ──▶ hunks ──▶ new text ──▶ still parses? ──▶ backup (train.py.orig) ──▶ rename into place

Guarantees: a hunk applies only where its old lines stand word for word (moved, if at all, to the one other
place where they do), one that only adds lines where those above do, for another patch may have added its own
there; a file is never left half written; an existing backup is never overwritten; mode, encoding and line
endings stay.
"""

from __future__ import annotations

import ast
import codecs
import io
import itertools
import os
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path

from penstock._render.diffs import DiffError, Hunk, split


class PatchRefusedError(ValueError):
    """A patch that does not fit the file as it is now."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was changed, and where its old text is."""

    file: Path
    backup: Path

    def undo(self) -> None:
        """Put the old text back."""
        self.backup.replace(self.file)


def write(patch: str, *, base: Path) -> list[Written]:
    """Change the files that a patch names, relative to `base`.

    Raises PatchRefusedError, before anything is written, when a part does not fit; OSError when a file cannot
    be written, with the files before it put back.
    """
    try:
        files = split(patch)
    except DiffError as error:
        raise PatchRefusedError(str(error)) from None
    made = []
    for name, hunks in files:
        file = _existing(name, base)
        made.append((file, _patched(file, hunks)))
    done: list[Written] = []
    try:
        done.extend(_replace(file, content) for file, content in made)
    except OSError:
        for each in done:
            each.undo()
        raise
    return done


def _existing(name: str, base: Path) -> Path:
    for candidate in (name, name.partition("/")[2] if name.startswith(("a/", "b/")) else ""):
        if candidate and (base / candidate).is_file():
            return (base / candidate).resolve()
    raise PatchRefusedError(f"there is no file {name}")


def _patched(file: Path, hunks: list[Hunk]) -> bytes:
    """The new content of a file."""
    content = file.read_bytes()
    text, encoding = _decoded(content, file)
    ending = "\r\n" if "\r\n" in text else "\n"
    changed = apply(text.replace("\r\n", "\n"), hunks)
    if file.suffix == ".py":
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise PatchRefusedError(f"{file.name} would not be Python any more: {error.msg}") from None
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    return mark + changed.replace("\n", ending).encode(encoding)


def _decoded(content: bytes, file: Path) -> tuple[str, str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding), encoding.removesuffix("-sig")
    except (SyntaxError, UnicodeDecodeError):
        raise PatchRefusedError(f"the encoding of {file.name} is unknown") from None


def apply(text: str, hunks: list[Hunk]) -> str:
    """The text with every hunk in place. Raises PatchRefusedError when one does not fit."""
    rows = text.split("\n")
    shift = 0
    for hunk in hunks:
        place, fitted = _fitted(rows, hunk, shift)
        rows[place : place + len(fitted.old)] = fitted.new
        shift += len(fitted.new) - len(fitted.old)
    return "\n".join(rows)


def _fitted(rows: list[str], hunk: Hunk, shift: int) -> tuple[int, Hunk]:
    """Where a hunk stands, with all of its old lines or, if it only adds some, with those above them."""
    for each in (hunk, _addition(hunk)):
        place = _place(rows, each, shift) if each is not None else None
        if each is not None and place is not None:
            return place, each
    raise PatchRefusedError(f"the lines to change near line {hunk.at} are not there as they were")


def _addition(hunk: Hunk) -> Hunk | None:
    pairs = zip(hunk.old, hunk.new, strict=False)
    above = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    end = len(hunk.new) - (len(hunk.old) - above)
    only_adds = above > 0 and hunk.new[end:] == hunk.old[above:]
    return Hunk(hunk.at, hunk.old[:above], hunk.new[:end]) if only_adds else None


def _place(rows: list[str], hunk: Hunk, shift: int) -> int | None:
    """At its line, or at the only other place with just these lines."""
    old, size = list(hunk.old), len(hunk.old)
    if not old:
        return min(hunk.at + shift, len(rows))
    expected = hunk.at - 1 + shift
    if expected >= 0 and rows[expected : expected + size] == old:
        return expected
    places = [at for at in range(len(rows) - size + 1) if rows[at : at + size] == old]
    return places[0] if len(places) == 1 else None


def _replace(file: Path, content: bytes) -> Written:
    backup = _backup(file)
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(content)
            Path(name).chmod(file.stat().st_mode & 0o7777)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    return Written(file, backup)


def _backup(file: Path) -> Path:
    """A copy beside the file, under the first free name: train.py.orig, train.py.orig1 …"""
    number = 0
    while True:
        backup = file.with_name(f"{file.name}.orig{number or ''}")
        try:
            with backup.open("xb") as out:
                out.write(file.read_bytes())
        except FileExistsError:
            number += 1
            continue
        backup.chmod(file.stat().st_mode & 0o7777)
        return backup
