"""What the runtime is told by a backend."""

from __future__ import annotations

from typing import get_args

import pytest

from penstock._engine import events

DEFINED = [
    value
    for value in vars(events).values()
    if isinstance(value, type) and value.__module__ == events.__name__
]


@pytest.mark.parametrize("kind", DEFINED)
def test_every_event_is_one_of_the_union(kind):
    assert kind in get_args(events.Event)


@pytest.mark.parametrize("kind", DEFINED)
def test_every_event_names_its_worker_first(kind):
    assert kind._fields[0] == "worker"
