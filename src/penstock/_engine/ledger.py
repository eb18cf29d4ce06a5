"""The life of every ticket, and the only judge of exactly-once delivery.

    planned ──assign──▶ assigned ──fill──▶ filled ──deliver──▶ delivered
       ▲                   │                  │
       └──────lose─────────┴──────lose────────┘
                           │
                           └──void──▶ (gone: its worker ran out of data)

Guarantees:

* A ticket is delivered at most once: the second `fill` of a ticket, from a worker we had already
  given up on, is reported as stale and changes nothing.
* A ticket is never forgotten: it stays here until it is delivered or void.
* Memory is bounded by the tickets in flight: a delivered ticket leaves the ledger.

Runs on the consumer's thread only; holds no lock, reads no clock, starts nothing.
"""

from __future__ import annotations

from enum import Enum

from penstock._base.words import Ticket


class Stage(Enum):
    """Where a ticket is."""

    PLANNED = "planned"
    ASSIGNED = "assigned"
    FILLED = "filled"


class Ledger:
    """Tracks tickets from plan to delivery."""

    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self._stage: dict[int, Stage] = {}
        self._attempt: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, number: int) -> bool:
        return number in self._tickets

    def plan(self, ticket: Ticket) -> None:
        """Enter a new ticket."""
        assert ticket.number not in self._tickets, ticket
        self._tickets[ticket.number] = ticket
        self._stage[ticket.number] = Stage.PLANNED
        self._attempt[ticket.number] = 0

    def peek(self, number: int) -> tuple[Ticket, int]:
        """A ticket and its attempt number."""
        return self._tickets[number], self._attempt[number]

    def assign(self, number: int) -> tuple[Ticket, int]:
        """Hand a planned ticket out; return it with its attempt number."""
        assert self._stage[number] is Stage.PLANNED, (number, self._stage[number])
        self._stage[number] = Stage.ASSIGNED
        return self.peek(number)

    def fill(self, number: int, attempt: int) -> bool:
        """Record that a worker answered a ticket; False means stale, drop the answer."""
        # A worker that hung and was replaced may still finish. Its attempt number is
        # then behind ours, and only the replacement's work counts.
        if self._stage.get(number) is not Stage.ASSIGNED or attempt != self._attempt[number]:
            return False
        self._stage[number] = Stage.FILLED
        return True

    def is_filled(self, number: int) -> bool:
        """Whether the ticket's batch is here and may be delivered."""
        return self._stage.get(number) is Stage.FILLED

    def deliver(self, number: int) -> Ticket:
        """Record that the consumer received the batch."""
        assert self._stage[number] is Stage.FILLED, (number, self._stage[number])
        return self._forget(number)

    def void(self, number: int) -> Ticket:
        """Strike out a ticket that has no data: its worker's iterable dataset has ended."""
        assert self._stage[number] is not Stage.FILLED, number
        return self._forget(number)

    def lose(self, number: int) -> Ticket:
        """Put back a ticket whose worker is gone; late answers to the old attempt become stale."""
        self._stage[number] = Stage.PLANNED
        self._attempt[number] += 1
        return self._tickets[number]

    def _forget(self, number: int) -> Ticket:
        del self._stage[number], self._attempt[number]
        return self._tickets.pop(number)
