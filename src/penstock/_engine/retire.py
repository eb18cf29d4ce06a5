"""When a worker has grown so much that a fresh one should take its place.

A worker looks at its own memory between two tickets. It *retires* when it has more than it may have, or,
where no limit is set, when the machine or the memory cgroup is nearly full and it holds more than its share:
then the kernel would end somebody soon, and not necessarily the right one. A successor starts small.

The memory of its own is what is anonymous and not shared: pages of the dataset that all workers see hardly
count.

`is_due` is pure; `Scale` reads /proc, at most once in LOOK_S.
"""

from __future__ import annotations

import time

from penstock._base import host

LOOK_S = 1.0
# With less than this left, the machine is nearly full.
NEARLY_FULL = 0.05
# A worker that holds less than this would leave nothing that helps.
LEAST = 64 << 20  # bytes


def is_due(own: int, limit: int | None, left: int, total: int, workers: int) -> bool:
    """Whether a worker with `own` bytes should retire; `left` of `total` bytes are still free for all."""
    if limit is not None:
        return own > limit
    return left < NEARLY_FULL * total and own > max(LEAST, total // (4 * workers))


class Scale:
    """Weighs the process that it is in."""

    def __init__(self, limit: int | None, workers: int) -> None:
        self._limit = limit
        self._workers = workers
        self._next_look = 0.0

    def is_due(self) -> bool:
        """Whether this worker should retire now."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_S
        # What costs little is asked first; the exact weight takes longer the more there is.
        if self._limit is not None:
            return host.anonymous_memory() > self._limit and host.own_memory() > self._limit
        left, total = host.memory_available(), host.memory_total()
        if left >= NEARLY_FULL * total:
            return False
        return is_due(host.own_memory(), None, left, total, self._workers)
