"""Where a report goes besides the terminal: checked before the exam, written in one step after it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

STANDARD = "-"  # as a file name: standard output


def refuse_unwritable(file: Path) -> None:
    """Raise OSError when the file could not be written; leaves an existing one as it is."""
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder")
    if _is_special(file):
        return
    # Permission bits lie (root, read-only mounts): making a file beside it is the only honest question.
    descriptor, name = tempfile.mkstemp(dir=file.absolute().parent, prefix=".penstock.")
    os.close(descriptor)
    Path(name).unlink()


def write(file: Path, text: str) -> None:
    """Write the file: the whole text or nothing."""
    if _is_special(file):
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        return
    target = file.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".penstock.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        Path(name).chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _is_special(file: Path) -> bool:
    """A pipe or a device, such as /dev/stdout: nothing that a rename may replace."""
    return file.exists() and not file.is_file()


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
