"""Tiny segments and slabs, given back after each test."""

from __future__ import annotations

import gc

import pytest

from penstock._arena.arena import Arena
from penstock._arena.segment import Segment
from penstock._arena.slab import SlabWriter


@pytest.fixture
def segment():
    """An empty segment."""
    made = Segment.create()
    yield made
    made.close()


@pytest.fixture
def writer():
    """A writer that has begun a batch in slab 0, which is empty."""
    made = SlabWriter()
    made.learn(0, Segment.create().fd, 0)
    made.begin(0, 0, 0)
    yield made
    made.close()


@pytest.fixture
def make_arena():
    """Arenas of a given budget, closed at the end."""
    made = []

    def make(budget=1 << 40):
        made.append(Arena(budget))
        return made[-1]

    yield make
    for arena in made:
        arena.close()


@pytest.fixture
def without_collector():
    """What dies in the test dies by its reference count alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
