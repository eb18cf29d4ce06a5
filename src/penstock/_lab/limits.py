"""How much a patient may take before it is ended, and what is kept of what it prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock._base import host

SHARE = 0.7  # of what is free on the machine at the start: the rest is for everybody else
LEAST_FREE = 0.04  # of the machine: below that it is ended too, before the kernel chooses somebody


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a trial, apart from its time."""

    memory: int
    least_free: int = 0
    output: int = 256 << 20
    processes: int = 512

    @classmethod
    def of_this_machine(cls, root: Path = host.ROOT) -> Limits:
        """What can be had here, now."""
        available, total = host.memory_available(root), host.memory_total(root)
        if is_limited(root):
            # A cgroup's limit: the kernel ends whoever exceeds it, and that is what the user sees.
            return cls(memory=max(available, total - (total >> 4)))
        return cls(memory=int(available * SHARE), least_free=int(total * LEAST_FREE))


def is_limited(root: Path = host.ROOT) -> bool:
    """Whether a cgroup grants less memory than the machine has."""
    return host.memory_total(root) < _physical(root)


def _physical(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")), 0)


class Kept:
    """The beginning and the end of a stream, and how long it was."""

    def __init__(self, *, each: int = 64 << 10) -> None:
        """Keep `each` bytes of the beginning and as many of the end."""
        self._each = each
        self._head, self._tail = bytearray(), bytearray()
        self.nbytes = 0
        self.is_closed = False  # then nothing more is kept

    def add(self, part: bytes) -> None:
        """More of the stream."""
        if self.is_closed:
            return
        self.nbytes += len(part)
        room = self._each - len(self._head)
        if room > 0:
            self._head += part[:room]
            part = part[room:]
        if part:
            self._tail += part
            del self._tail[: -self._each]

    def text(self) -> str:
        """What was kept; a line in between says how much is missing."""
        head, tail = (bytes(part).decode(errors="replace") for part in (self._head, self._tail))
        missing = self.nbytes - len(self._head) - len(self._tail)
        if missing <= 0:
            return (bytes(self._head) + bytes(self._tail)).decode(errors="replace")
        return f"{head}\n[... {missing} bytes ...]\n{tail}"
