"""Locks, queues and shared tensors of multiprocessing, on the way to a clean process.

They pickle only "while a process is being spawned": multiprocessing asks the process object of that
moment to take their descriptors along. We stand in for it: on the way out descriptors are collected and
replaced by their position; on arrival the position is replaced by the descriptor that came.
"""

from __future__ import annotations

import os
from multiprocessing import context
from typing import Any

_arrived: list[int] = []


class Spawning:
    """The process object that multiprocessing sees while a job is packed."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def __enter__(self) -> Spawning:
        context.set_spawning_popen(self)  # type: ignore[arg-type]  # it only calls the two below
        return self

    def __exit__(self, *_: object) -> None:
        context.set_spawning_popen(None)

    def close(self) -> None:
        """Close the descriptors that were taken along. May be called twice."""
        while self.fds:
            os.close(self.fds.pop())

    def duplicate_for_child(self, fd: int) -> int:
        """Take a descriptor along; return what stands for it."""
        self.fds.append(os.dup(fd))  # what it belongs to may be a temporary of the pickling
        return len(self.fds) - 1

    class DupFd:
        """What is pickled in place of a descriptor."""

        def __init__(self, position: int) -> None:
            self.position = position

        def detach(self) -> int:
            """The descriptor, on arrival; the caller owns it."""
            return os.dup(_arrived[self.position])


class received:  # noqa: N801 - reads as a phrase: with received(fds)
    """The descriptors that arrived, while a job is unpacked."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds

    def __enter__(self) -> None:
        _arrived[:] = self._fds

    def __exit__(self, *_: Any) -> None:
        _arrived.clear()
