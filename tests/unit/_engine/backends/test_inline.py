"""Tickets answered by whoever waits for them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from penstock._engine.backends.inline import InlineBackend, time_of_a_batch
from penstock._engine.events import Answered, Exhausted

from .jobs import Doubles, iterable_job, map_job


def test_a_ticket_is_answered_when_somebody_waits():
    backend = InlineBackend(map_job())
    assert backend.send(0, 7, 2, [1, 2]) is True
    (event,) = backend.wait(None)
    assert event[:3] == (0, 7, 2)
    assert backend.open(event.payload) == [2, 4]


def test_tickets_are_answered_in_turn():
    backend = InlineBackend(map_job(workers=2))
    for number in range(3):
        backend.send(number % 2, number, 0, [number])
    assert [backend.wait(5)[0].number for _ in range(3)] == [0, 1, 2]


def test_an_exception_is_raised_when_its_batch_is_opened():
    backend = InlineBackend(map_job())
    backend.send(0, 0, 0, [13])
    (event,) = backend.wait(None)
    with pytest.raises(ValueError, match=r"^unlucky$"):
        backend.open(event.payload)


def test_the_end_of_an_iterable_dataset_is_the_end_of_every_worker():
    backend = InlineBackend(iterable_job(workers=2))
    for number in range(2):
        backend.send(0, number, 0, [None] * 9)
    assert isinstance(backend.wait(None)[0], Answered)
    assert backend.wait(None) == [Exhausted(0), Exhausted(1)]


def test_stop_iteration_in_a_map_style_dataset_is_an_error():
    class Stops:
        def __getitem__(self, index):
            raise StopIteration

    backend = InlineBackend(map_job(Stops()))
    backend.send(0, 0, 0, [1])
    with pytest.raises(RuntimeError):
        backend.open(backend.wait(None)[0].payload)


def test_the_next_epoch_begins_anew():
    backend = InlineBackend(iterable_job())
    backend.send(0, 0, 0, [None] * 9)
    backend.wait(None)
    backend.send(0, 1, 0, [None] * 9)
    backend.rewind(None)
    backend.send(0, 0, 0, [None] * 9)
    (event,) = backend.wait(None)
    assert backend.open(event.payload) == ["a", "b", "c"]


def test_discarding_and_closing_need_nothing():
    backend = InlineBackend(map_job())
    backend.send(0, 0, 0, [1])
    backend.discard(backend.wait(None)[0].payload)
    backend.send(0, 1, 0, [1])
    backend.close()
    backend.close()


# ---- the trial ----------------------------------------------------------------------------------


def test_a_batch_has_a_time():
    assert 0 < time_of_a_batch(map_job(), [[1], [2]]) < 10


def test_a_dataset_without_batches_has_no_time():
    assert time_of_a_batch(map_job(), []) is None


def test_a_dataset_that_fails_has_no_time():
    assert time_of_a_batch(map_job(), [[1], [13]]) is None


def test_a_trial_cannot_be_seen_in_what_the_program_draws():
    class Random(Doubles):
        def __getitem__(self, index):
            return random.random(), np.random.rand(), torch.rand(1)

    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = draw()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    time_of_a_batch(map_job(Random()), [[1], [2]])
    assert draw() == expected
