"""The quarantine file: one line of JSON for each bad sample; given back, its indices are left alone.

    {"index": 17, "key": "a.jpg", "exception": "OSError", "message": "…", "traceback": "…", "worker": 1, …}

Guarantees:

* Whatever a dataset says becomes ASCII on one line: no text of its can forge a line or reach a terminal.
* An index is written once, however often its sample is bad.
* A line is whole when `add` returns; the lines of one call are appended with a single write, so that several
  ranks may share a file.
* What the file held when it was opened is known from the start; it is never rewritten.

Runs on the consumer's thread; holds no descriptor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from penstock._engine.bad_samples import BadSample
from penstock.errors import SettingsError


class Quarantine:
    """One file, and the indices that it named when it was opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # the program may change its folder
        self.known = frozenset(self._read())
        self._written = set(self.known)

    def add(self, samples: Iterable[BadSample]) -> None:
        """Append the samples that are not in the file yet. OSError: the file could not be written."""
        fresh = []
        for sample in samples:
            if sample.index is None or sample.index not in self._written:
                fresh.append(sample)
                if sample.index is not None:
                    self._written.add(sample.index)
        if fresh:
            self._append("".join(json.dumps(sample.as_dict()) + "\n" for sample in fresh).encode("ascii"))

    def _append(self, data: bytes) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def _read(self) -> list[int | str]:
        """The indices in the file; makes it if it is missing, so that it is known to be writable."""
        try:
            self._append(b"")
            lines = self.path.read_bytes().split(b"\n")
        except OSError as refused:
            raise SettingsError(
                "PS007",
                f"the quarantine file {str(self.path)!r} cannot be opened",
                why=f"{type(refused).__name__}: {refused.strerror}",
                fix="pass the path of a file that can be read and written, in a folder that exists",
            ) from refused
        found = [self._index_in(line, number) for number, line in enumerate(lines, 1) if line.strip()]
        return [index for index in found if index is not None]

    def _index_in(self, line: bytes, number: int) -> int | str | None:
        try:
            index = json.loads(line)["index"]
        except (ValueError, KeyError, TypeError) as damage:
            raise self._damaged(line, number, f"{type(damage).__name__}: {damage}") from None
        except RecursionError:
            raise self._damaged(line, number, "too deeply nested") from None
        if index is not None and (isinstance(index, bool) or not isinstance(index, (int, str))):
            raise self._damaged(line, number, f"the index is {index!r}")
        return index

    def _damaged(self, line: bytes, number: int, reason: str) -> SettingsError:
        shown = ascii(line[:60].decode("ascii", "replace"))
        return SettingsError(
            "PS007",
            f"line {number} of the quarantine file {str(self.path)!r} is damaged: {shown}",
            why=reason,
            fix='repair or remove the line: each is a JSON object with an "index", a number or a text',
        )
