"""The event log of a running trial, read as it grows.

While the trial runs only a few kinds of events matter; the rest is parsed at the end, so that reading does
not take the CPU that is being measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Any

MOST_BYTES = 64 << 20  # the observer itself stops long before

_KIND = re.compile(rb'"kind": ?"(batch|iter|next|started|ended|enough|failed|process|segment|temporary)"')
_OF_PASSES = {b"iter", b"started", b"next", b"batch", b"ended"}
_PID = re.compile(rb'"pid": ?(\d+)')


class Journal:
    """What the patient's processes have reported so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        self._lines: list[bytes] = []
        self.batches = 0
        self.why_enough: str | None = None
        self.is_by_time = False  # and because it took long, not because all was seen
        self.consumers: set[int] = set()  # pids that have begun to iterate a loader
        self.pids: set[int] = set()  # of all that have reported
        self.workers: dict[int, tuple[str, int]] = {}  # pid: loader, number of the worker
        self.crews: dict[tuple[int, str, int], tuple[int, ...]] = {}  # workers of each pass that goes on
        self.segments: dict[str, int] = {}  # names of shared memory that the program has made, and who did
        self.temporaries: set[str] = set()  # files and directories that it has made with `tempfile`
        self.has_lost_batch = False  # a worker could not send one
        self.has_failed = False  # something has raised
        self._last: dict[int, bytes] = {}  # the newest of those kinds, by process

    def read(self) -> bool:
        """Take in what is new; whether there was anything."""
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - many times a second
                file.seek(self._offset)
                new = file.read(MOST_BYTES - self._offset)
        except OSError:
            return False
        if not new:
            return False
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        self._lines += lines
        for line in lines:
            match = _KIND.search(line, 0, 64)
            if match:
                self._note(match[1], line)
        return True

    @property
    def waiting(self) -> frozenset[int]:
        """Processes that have told that they wait for a batch, and nothing since."""
        return frozenset(pid for pid, kind in self._last.items() if kind in {b"iter", b"started", b"next"})

    def _note(self, kind: bytes, line: bytes) -> None:
        match = _PID.search(line, 0, 96)
        pid = int(match[1]) if match else 0
        if kind == b"process":
            self.pids.add(pid)
            return
        if kind in _OF_PASSES:
            self._last[pid] = kind
        if kind == b"batch":
            self.batches += 1
        elif kind != b"next":
            event = parse(line)
            if event is not None:
                with contextlib.suppress(TypeError, ValueError):  # not as the observer writes it
                    self._take(kind, event)

    def _take(self, kind: bytes, event: dict[str, Any]) -> None:
        pid, loader = event["pid"], str(event.get("loader"))
        key = (pid, loader, event.get("number") or 0)
        if kind == b"enough":
            self.why_enough = str(event.get("why") or "enough")
            self.is_by_time = bool(event.get("is_by_time"))
        elif kind == b"segment":
            self.segments[str(event.get("name"))] = int(event["pid"])
        elif kind == b"temporary":
            self.temporaries.add(str(event.get("path")))
        elif kind == b"iter":
            self.consumers.add(pid)
        elif kind == b"failed":
            self.has_failed = True
            self.has_lost_batch |= event.get("phase") == "feeder"
        elif kind == b"ended":
            self.crews.pop(key, None)
        else:
            self.crews[key] = tuple(event.get("workers") or ())
            self.workers.update({worker: (loader, place) for place, worker in enumerate(self.crews[key])})

    def events(self) -> list[dict[str, Any]]:
        """Every event so far, in order of time; what cannot be parsed is left out."""
        found = [event for event in map(parse, [*self._lines, self._rest]) if event is not None]
        return sorted(found, key=lambda event: event["at"])  # stable: each process's own order stays


def parse(line: bytes) -> dict[str, Any] | None:
    """One event, or None when the line is torn or is none of ours."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        return None
    is_whole = isinstance(event.get("pid"), int) and isinstance(event.get("at"), (int, float))
    return event if is_whole else None


def create(folder: str) -> str:
    """An empty log in this folder; its path."""
    path = os.path.join(folder, "log")  # noqa: PTH118 - a string for the plan
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    return path
