"""The life of a ticket, step by step."""

from __future__ import annotations

import pytest

from penstock._base.words import Ticket
from penstock._engine.ledger import Ledger, Stage


@pytest.fixture
def ledger():
    """A ledger with ticket 7, planned."""
    made = Ledger()
    made.plan(Ticket(7, (1, 2)))
    return made


def test_a_planned_ticket_is_in_the_ledger(ledger):
    assert 7 in ledger
    assert 8 not in ledger
    assert len(ledger) == 1


def test_an_assigned_ticket_comes_with_its_attempt(ledger):
    assert ledger.assign(7) == (Ticket(7, (1, 2)), 0)


def test_peeking_changes_nothing(ledger):
    assert ledger.peek(7) == (Ticket(7, (1, 2)), 0)
    assert ledger.assign(7) == (Ticket(7, (1, 2)), 0)


def test_an_answer_fills_its_ticket(ledger):
    ledger.assign(7)
    assert not ledger.is_filled(7)
    assert ledger.fill(7, 0) is True
    assert ledger.is_filled(7)


def test_a_delivered_ticket_leaves_the_ledger(ledger):
    ledger.assign(7)
    ledger.fill(7, 0)
    assert ledger.deliver(7) == Ticket(7, (1, 2))
    assert 7 not in ledger
    assert len(ledger) == 0


def test_a_second_answer_is_stale(ledger):
    ledger.assign(7)
    ledger.fill(7, 0)
    assert ledger.fill(7, 0) is False
    assert ledger.is_filled(7)


def test_a_late_answer_is_stale(ledger):
    ledger.assign(7)
    ledger.lose(7)
    ledger.assign(7)
    assert ledger.fill(7, 0) is False
    assert ledger.fill(7, 1) is True


def test_a_late_answer_before_the_second_attempt_is_stale(ledger):
    ledger.assign(7)
    ledger.lose(7)
    assert ledger.fill(7, 0) is False
    assert ledger.fill(7, 1) is False


def test_an_answer_to_a_delivered_ticket_is_stale(ledger):
    ledger.assign(7)
    ledger.fill(7, 0)
    ledger.deliver(7)
    assert ledger.fill(7, 0) is False


def test_an_answer_to_a_void_ticket_is_stale(ledger):
    ledger.assign(7)
    ledger.void(7)
    assert ledger.fill(7, 0) is False


def test_an_answer_to_an_unknown_ticket_is_stale(ledger):
    assert ledger.fill(99, 0) is False


def test_an_answer_to_a_ticket_that_nobody_has_is_stale(ledger):
    assert ledger.fill(7, 0) is False


def test_a_lost_ticket_is_planned_again_with_the_next_attempt(ledger):
    ledger.assign(7)
    assert ledger.lose(7) == Ticket(7, (1, 2))
    assert ledger.assign(7) == (Ticket(7, (1, 2)), 1)


def test_a_filled_ticket_can_be_lost(ledger):
    ledger.assign(7)
    ledger.fill(7, 0)
    ledger.lose(7)
    assert not ledger.is_filled(7)
    assert ledger.assign(7)[1] == 1


def test_a_void_ticket_leaves_the_ledger(ledger):
    assert ledger.void(7) == Ticket(7, (1, 2))
    assert 7 not in ledger


@pytest.mark.parametrize(
    "steps",
    [
        lambda ledger: ledger.plan(Ticket(7, ())),
        lambda ledger: ledger.deliver(7),
        lambda ledger: (ledger.assign(7), ledger.deliver(7)),
        lambda ledger: (ledger.assign(7), ledger.assign(7)),
        lambda ledger: (ledger.assign(7), ledger.fill(7, 0), ledger.void(7)),
    ],
    ids=["plan twice", "deliver planned", "deliver assigned", "assign twice", "void filled"],
)
def test_a_step_out_of_order_is_a_bug(ledger, steps):
    with pytest.raises(AssertionError):
        steps(ledger)


@pytest.mark.parametrize("step", ["deliver", "void", "lose", "peek", "assign"])
def test_an_unknown_ticket_is_a_bug(ledger, step):
    with pytest.raises(KeyError):
        getattr(ledger, step)(99)


def test_the_stages_are_those_of_the_drawing():
    assert [stage.value for stage in Stage] == ["planned", "assigned", "filled"]
