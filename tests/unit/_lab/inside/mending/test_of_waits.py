"""Samples that are waited for too long."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from penstock._lab.inside.mending import of_waits
from penstock._lab.inside.mending.of_waits import SampleDeadline


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(of_waits, "_DEADLINE_S", 0.02)


@pytest.fixture
def pipe():
    """The end of a pipe from which nothing ever comes."""
    ends = os.pipe()
    yield ends[0]
    for end in ends:
        os.close(end)


def test_a_neighbour_takes_the_place_of_a_sample_that_does_not_come(pipe):
    def load(index):
        return os.read(pipe, 1) if index == 7 else index

    assert SampleDeadline().get(load, 7) == 8


def test_a_lock_that_nobody_gives_back_is_given_up():
    lock = threading.Lock()
    lock.acquire()

    with pytest.raises(TimeoutError, match=r"no sample came within 0.02 s"):
        SampleDeadline().get(lambda _: lock.acquire(), 7)


def test_code_that_catches_every_error_and_tries_again_is_left_too(pipe):
    def load(index):
        while index == 7:
            try:
                os.read(pipe, 1)
            except Exception:
                continue
        return index

    assert SampleDeadline().get(load, 7) == 8


def test_a_stream_that_is_stuck_fails(pipe):
    stream = iter(lambda: os.read(pipe, 1), None)

    with pytest.raises(TimeoutError):
        SampleDeadline().next_of(stream)


def test_afterwards_the_alarm_is_as_before():
    before = signal.getsignal(signal.SIGALRM)

    assert SampleDeadline().get(lambda index: index, 3) == 3
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_errors_of_the_dataset_stay_its_own():
    with pytest.raises(KeyError):
        SampleDeadline().get({}.__getitem__, 7)
