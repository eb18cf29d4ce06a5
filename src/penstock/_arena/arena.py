"""All shared memory of one loader: its slabs, who has them, and the budget.

                    reserve                 filled                  lend
        free ─────────────────▶ reserved ───────────▶ filled ──────────────────▶ held
         ▲                          │                    │   (small or over      │
         └──────── cancel ──────────┘◀── copied out ─────┘    budget: a copy)    │
         └───────────────────────── last view of the batch dies ─────────────────┘

Guarantees:

* A slab is never handed to a worker while a view of it is alive in the consumer (NOTE [ Lease life ]),
  in a process forked from the consumer, or in the worker that wrote it.
* The bytes of all slabs stay within the budget, except that one batch can always travel. What is still being
  made counts as the largest batch so far, and before the first has arrived as UNSEEN_BYTES.
* The consumer can keep as many batches as it likes: past the budget they are copied out to ordinary
  memory, which is slower, never wrong and never stuck.

Runs on the consumer's thread, except `_released`, which any thread may call.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock._arena import lease
from penstock._arena.segment import Mapping, Segment, memory_left
from penstock._base import descriptors, host

if TYPE_CHECKING:
    from penstock._arena.pinner import Pinner

# Below this a copy costs less than the lease's bookkeeping and the slab is free again at once.
COPY_BELOW = 32 << 10  # bytes
# From here on it is asked whether there is memory for a copy. That reads files of every cgroup, which can
# take a millisecond; a copy of this size takes several.
ASK_FROM = 32 << 20  # bytes
# The part of the memory that is free at the start which batches in flight or kept may take.
BUDGET_SHARE = 0.25
# What a batch counts as before the first has arrived: the size of a large one. A budget of the usual size
# still lets every worker begin with all of its tickets, and a small one is not overdrawn many times over.
UNSEEN_BYTES = 32 << 20
# What an idle loader keeps between two epochs, so that the next one starts without page faults.
IDLE_BYTES = 256 << 20
# Slabs that a consumer may hold beyond those in flight: each costs a descriptor and a mapping.
MOST_HELD = 64
# The part of the descriptors that this process may have which held slabs may take.
HELD_SHARE = 0.25


@dataclass(slots=True, eq=False)
class Slab:
    """A segment for one batch, as the consumer sees it."""

    number: int
    segment: Segment
    mapping: Mapping | None = None
    nbytes: int = 0  # reserved, as the last worker reported
    worker: int = -1  # who fills it or did so last, and has it mapped
    known_to: set[int] = field(default_factory=set)  # workers that have its descriptor
    is_spent: bool = False  # must not be written again: somebody else can still see it


class Arena:
    """The consumer's stock of slabs."""

    def __init__(self, budget: int | None = None, *, is_pinned: bool = False) -> None:
        self.budget = default_budget() if budget is None else budget
        self.expected = 0  # bytes of the largest batch so far
        self.copied_out = 0  # batches that were copied because too many were kept
        self._slabs: dict[int, Slab] = {}
        self._free: list[Slab] = []
        self._held: set[int] = set()
        self._descriptors = int(descriptors.limit() * HELD_SHARE)
        self._returned: deque[int] = deque()
        self._given_up: list[int] = []
        self._next_number = 0
        self._is_closed = False
        self._pinner = _pinner(self._returned) if is_pinned else None
        self._abandon = weakref.finalize(self, _abandon, self._slabs, self._pinner)
        self._abandon.atexit = False  # a daemon thread may still be at it; the kernel clears up
        _watch_forks(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.nbytes for slab in self._slabs.values())

    @property
    def held(self) -> int:
        """How many delivered batches still lie in a slab."""
        self._collect()
        return len(self._held)

    def reserve(self, worker: int) -> Slab | None:
        """A slab for `worker` to fill, or None when the budget is spent until one is released."""
        self._collect()
        if self._free:
            # The slab that this worker filled before is mapped, and warm, on its side.
            choice = next((slab for slab in reversed(self._free) if slab.worker == worker), None)
            slab = choice or self._free[-1]
            self._free.remove(slab)
            return slab
        busy = len(self._slabs) - len(self._held)
        if busy and self._promised() > self.budget:
            return None
        slab = Slab(self._next_number, Segment.create())
        self._next_number += 1
        self._slabs[slab.number] = slab
        return slab

    def cancel(self, slab: Slab) -> None:
        """Take back a slab whose batch will not be delivered; nothing happens if it is back, or held."""
        if slab.number in self._slabs and slab.number not in self._held and slab not in self._free:
            self._release(slab)

    def open(self, slab: Slab, nbytes: int, used: int) -> tuple[memoryview, bool]:
        """The bytes of a filled slab, and whether they are held under a lease.

        Without a lease the caller copies out of them before the next call to the arena.
        """
        slab.nbytes = slab.segment.nbytes = max(slab.nbytes, nbytes)
        self.expected = max(self.expected, used)
        if slab.mapping is None or slab.mapping.nbytes < slab.nbytes:
            slab.mapping = slab.segment.map()
            if self._pinner is not None:
                self._pinner.register(slab.mapping)
        if used < COPY_BELOW or not self._may_hold(used):
            self.copied_out += used >= COPY_BELOW
            return memoryview(slab.mapping.whole).cast("B"), False
        self._held.add(slab.number)
        released = self._returned.append if self._pinner is None else self._pinner.settle
        return lease.hold(slab.mapping, released, slab.number), True

    def copied(self, slab: Slab) -> None:
        """Take back a slab that was opened without a lease."""
        self._release(slab)

    def given_up(self) -> list[int]:
        """Numbers of slabs that workers may forget, each told once."""
        told, self._given_up = self._given_up, []
        return told

    def spend_held(self) -> None:
        """The process is about to fork: the child will see what is held now, so never reuse it."""
        # On whatever thread forks: looks at copies, and changes nothing but the marks.
        for number in set(self._held) - _copied(self._returned):
            slab = self._slabs.get(number)
            if slab is not None:
                slab.is_spent = True

    def idle(self) -> None:
        """Between epochs: keep a little warm memory, give the rest back."""
        self._collect()
        kept = 0
        for slab in list(self._free):
            if kept + slab.nbytes > IDLE_BYTES:
                self._free.remove(slab)
                self._drop(slab)
            else:
                kept += slab.nbytes
        for slab in self._slabs.values():
            slab.known_to.clear()
            slab.worker = -1

    def forget_worker(self, worker: int) -> None:
        """The worker is gone; its successor knows no slab."""
        for slab in self._slabs.values():
            slab.known_to.discard(worker)
            if slab.worker == worker:
                slab.worker = -1

    def close(self) -> None:
        """Give everything back; batches that the consumer holds stay valid. May be called twice."""
        self._is_closed = True
        for slab in list(self._slabs.values()):
            self._drop(slab)
        self._free.clear()
        self._held.clear()
        self._abandon()

    def _promised(self) -> int:
        """Bytes of all slabs and of one more; what is not filled yet counts as the largest batch so far."""
        seen = [slab.nbytes for slab in self._slabs.values() if slab.nbytes]
        unseen = self.expected or max(seen, default=UNSEEN_BYTES)
        return sum(seen) + unseen * (len(self._slabs) - len(seen) + 1)

    def _may_hold(self, used: int) -> bool:
        if len(self._held) >= min(MOST_HELD, self._descriptors):
            return False
        # With this one held, a batch must still fit for the workers to go on.
        if self.nbytes + self.expected <= self.budget or self._free:
            return True
        # A copy takes memory, a lease takes none. Where there is too little for a copy beside what workers
        # are about to take, one of them says so in words, instead of this process being killed.
        return used >= ASK_FROM and used + self._promised() - self.nbytes > memory_left()

    def _collect(self) -> None:
        while self._returned:
            number = self._returned.popleft()
            self._held.discard(number)
            slab = self._slabs.get(number)
            if slab is not None:
                self._release(slab)

    def _release(self, slab: Slab) -> None:
        is_too_much = self.nbytes > self.budget and len(self._slabs) > 1  # it grew while it was out
        if self._is_closed or slab.is_spent or is_too_much:
            self._drop(slab)
            return
        self._free.append(slab)

    def _drop(self, slab: Slab) -> None:
        if self._slabs.pop(slab.number, None) is not None:
            slab.segment.close()
            slab.mapping = None  # undone once no view of it is left
            self._given_up.append(slab.number)


def _copied(returned: deque[int]) -> set[int]:
    try:
        return set(returned)
    except RuntimeError:  # another thread is at it: then they count as held
        return set()


def _abandon(slabs: dict[int, Slab], pinner: Pinner | None) -> None:
    """Give back what an arena has, when it is closed or nobody holds it any more."""
    for slab in slabs.values():
        slab.segment.close()
    if pinner is not None:
        pinner.close()


def _pinner(returned: deque[int]) -> Pinner:
    from penstock._arena.pinner import Pinner

    return Pinner(returned.append)


def default_budget() -> int:
    """Bytes that batches may take: a share of the memory that is free now."""
    return max(64 << 20, int(host.memory_available() * BUDGET_SHARE))


_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()
_watched_pid = 0


def _watch_forks(arena: Arena) -> None:
    global _watched_pid  # noqa: PLW0603 - the hook is installed once, with the first arena
    _arenas.add(arena)
    if not _watched_pid:
        _watched_pid = os.getpid()
        os.register_at_fork(before=_before_fork)


def _before_fork() -> None:
    for arena in list(_arenas):
        arena.spend_held()
