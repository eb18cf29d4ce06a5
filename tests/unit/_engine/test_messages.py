"""Everything that crosses a process boundary."""

from __future__ import annotations

import pickle

import pytest

from penstock._base.words import Ticket
from penstock._engine import messages
from penstock._engine.messages import KINDS, NUMBERS

DEFINED = [
    value
    for value in vars(messages).values()
    if isinstance(value, type) and value.__module__ == messages.__name__
]


@pytest.mark.parametrize("kind", DEFINED)
def test_every_kind_is_registered(kind):
    assert kind in KINDS


def test_every_kind_has_one_number():
    assert len(set(KINDS)) == len(KINDS)
    assert [KINDS[NUMBERS[kind]] for kind in KINDS] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_its_wire_form(kind):
    message = kind(*(f"field {place}" for place in range(len(kind._fields))))
    number, *fields = pickle.loads(pickle.dumps((NUMBERS[kind], *message), 5))
    assert KINDS[number](*fields) == message


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_pickles(kind):
    message = kind(*range(len(kind._fields)))
    assert pickle.loads(pickle.dumps(message)) == message


def test_an_assignment_has_its_ticket():
    assert messages.Assign(3, 1, [4, 5], 0, 0, 0, ()).ticket == Ticket(3, [4, 5])
