"""Exactly-once, whatever the order of events."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from penstock._base.words import Ticket
from penstock._engine.ledger import Ledger


class LedgerMachine(RuleBasedStateMachine):
    """Workers that finish, die, run out of data, or come back late, in any interleaving."""

    planned = Bundle("planned")
    running = Bundle("running")
    zombies = Bundle("zombies")
    filled = Bundle("filled")

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()
        self.tickets = {}
        self.alive = set()
        self.delivered = []
        self.void = []

    @rule(target=planned, indices=st.lists(st.integers(0, 9), max_size=3))
    def plan(self, indices):
        ticket = Ticket(len(self.tickets), tuple(indices))
        self.tickets[ticket.number] = ticket
        self.alive.add(ticket.number)
        self.ledger.plan(ticket)
        return ticket.number

    @rule(target=running, number=consumes(planned))
    def assign(self, number):
        ticket, attempt = self.ledger.assign(number)
        assert ticket == self.tickets[number]
        return number, attempt

    @rule(target=filled, run=consumes(running))
    def finish(self, run):
        assert self.ledger.fill(*run)
        return run

    @rule(run=filled)
    def finish_again(self, run):
        assert not self.ledger.fill(*run)

    @rule(target=zombies, run=consumes(running), again=st.booleans())
    def end_of_data(self, run, again):
        number, _ = run
        assert self.ledger.void(number) == self.tickets[number]
        self.void.append(number)
        self.alive.discard(number)
        return run if again else multiple()

    @rule(run=consumes(zombies))
    def come_back_late(self, run):
        assert not self.ledger.fill(*run)

    @rule(target=planned, run=consumes(filled))
    def lose_an_answer(self, run):
        self.ledger.lose(run[0])
        return run[0]

    @rule(run=consumes(filled))
    def deliver(self, run):
        assert self.ledger.is_filled(run[0])
        assert self.ledger.deliver(run[0]) == self.tickets[run[0]]
        self.delivered.append(run[0])
        self.alive.discard(run[0])

    @rule(run=running, attempt=st.integers(-1, 5))
    def answer_with_another_attempt(self, run, attempt):
        if attempt != run[1]:
            assert not self.ledger.fill(run[0], attempt)

    @invariant()
    def never_twice(self):
        ended = self.delivered + self.void
        assert len(ended) == len(set(ended))

    @invariant()
    def never_forgotten(self):
        assert len(self.ledger) == len(self.alive)
        assert all((number in self.ledger) == (number in self.alive) for number in self.tickets)


class HangingMachine(LedgerMachine):
    """The same, with workers that hang, are replaced, and answer after all."""

    planned, running, zombies = LedgerMachine.planned, LedgerMachine.running, LedgerMachine.zombies

    @rule(target=zombies, run=consumes(running))
    def hang_and_be_replaced(self, run):
        self.ledger.lose(run[0])
        self.ledger.assign(run[0])
        self.replacements = [*getattr(self, "replacements", []), (run[0], run[1] + 1)]
        return run

    @rule(data=st.data())
    def replacement_finishes(self, data):
        waiting = getattr(self, "replacements", [])
        if waiting:
            run = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            assert self.ledger.fill(*run)
            self.ledger.deliver(run[0])
            self.delivered.append(run[0])
            self.alive.discard(run[0])


TestLedger = LedgerMachine.TestCase
TestHangingWorkers = HangingMachine.TestCase
