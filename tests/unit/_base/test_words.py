"""The values that every room speaks of."""

from __future__ import annotations

import pickle

import pytest

from penstock._base.words import Ticket


def test_a_ticket_is_a_value():
    assert Ticket(3, (1, 2)) == Ticket(3, (1, 2))
    assert pickle.loads(pickle.dumps(Ticket(3, (1, 2)))) == Ticket(3, (1, 2))


def test_a_ticket_cannot_be_changed():
    with pytest.raises(AttributeError):
        Ticket(3, ()).number = 4
