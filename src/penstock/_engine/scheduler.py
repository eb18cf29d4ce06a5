"""Which worker gets which ticket, and which batch comes next.

The rules are torch's, so that worker k sees the same tickets, and its random numbers fall on the same
samples: tickets go round the active workers in turn; with `in_order` the batches come back by number,
without it as they arrive, and a worker takes more only while it has room.

Guarantees:

* At most `workers * depth` tickets are out.
* With `in_order`, numbers are delivered in rising order; without it each is delivered once.
* A worker that ran out of data gets no more tickets, and what it still had is void.

Pure: events in, decisions out; no clock, no process.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock._base.words import Ticket
from penstock._engine.ledger import Ledger


class Scheduler:
    """Decides for one epoch."""

    def __init__(self, workers: int, depth: int, *, in_order: bool) -> None:
        self.ledger = Ledger()
        self._workers = workers
        self._most = workers * depth
        self._in_order = in_order
        self._active = [True] * workers
        self._load = [0] * workers  # tickets out, filled ones included, until delivered
        self._turn = 0
        self._next_number = 0
        self._next_delivery = 0
        self._owner: dict[int, int] = {}
        self._arrived: deque[int] = deque()

    @property
    def outstanding(self) -> int:
        """Tickets that are planned and not yet delivered."""
        return len(self.ledger)

    def is_active(self, worker: int) -> bool:
        """Whether the worker still has data in this epoch."""
        return self._active[worker]

    def owner(self, number: int) -> int:
        """The worker that has, or had, this ticket."""
        return self._owner[number]

    def tickets_of(self, worker: int) -> list[int]:
        """Numbers that this worker has and has not answered."""
        return [
            number
            for number, owner in self._owner.items()
            if owner == worker and not self.ledger.is_filled(number)
        ]

    def plan(self, indices: Any) -> tuple[int, int] | None:
        """Make a ticket of what the sampler drew; return (number, worker), or None if nobody has room."""
        worker = self._next_worker()
        if worker is None:
            return None
        number = self._next_number
        self._next_number += 1
        self.ledger.plan(Ticket(number, indices))
        self._owner[number] = worker
        self._load[worker] += 1
        return number, worker

    def fill(self, number: int, attempt: int) -> bool:
        """An answer arrived; False means stale, drop it."""
        if not self.ledger.fill(number, attempt):
            return False
        self._arrived.append(number)
        return True

    def exhaust(self, worker: int) -> list[int]:
        """The worker has no more data; return the numbers that are void with it."""
        self._active[worker] = False
        void = self.tickets_of(worker)
        for number in void:
            self.ledger.void(number)
            del self._owner[number]
        return void

    def lose(self, worker: int) -> list[int]:
        """The worker is gone; return the numbers that must be done again, oldest first."""
        lost = sorted(self.tickets_of(worker))
        for number in lost:
            self.ledger.lose(number)
        return lost

    def awaited(self) -> list[int]:
        """The numbers of which one must be answered before the consumer gets anything."""
        if not self._in_order:
            return [number for number in self._owner if not self.ledger.is_filled(number)]
        return [self._next_delivery] if self._next_delivery in self.ledger else []

    def next_ready(self) -> int | None:
        """The number to deliver now, or None when the consumer must wait (or nothing is out)."""
        if not self._in_order:
            return self._arrived[0] if self._arrived else None
        while self._next_delivery < self._next_number:
            if self._next_delivery in self.ledger:
                break
            self._next_delivery += 1  # void
        return self._next_delivery if self.ledger.is_filled(self._next_delivery) else None

    def deliver(self, number: int) -> int:
        """The consumer gets this batch; return the worker that made it."""
        self.ledger.deliver(number)
        self._arrived.remove(number)
        worker = self._owner.pop(number)
        self._load[worker] -= 1
        return worker

    def _next_worker(self) -> int | None:
        room = self._most // max(1, sum(self._active))
        for _ in range(self._workers):
            worker = self._turn
            self._turn = (self._turn + 1) % self._workers
            if self._active[worker] and (self._in_order or self._load[worker] < room):
                return worker
        return None
