"""What wakes the nursery."""

from __future__ import annotations

import os

import pytest

from penstock._engine.backends import nursery
from penstock._engine.channel import Channel, pair
from penstock._engine.messages import Adopt


@pytest.fixture
def ends():
    """The nursery's channel, the consumer's, and a pipe in the place of a pidfd."""
    here, there = pair()
    made = Channel(here), Channel(there)
    pipe = os.pipe()
    yield *made, *pipe
    for channel in made:
        channel.close()
    for fd in pipe:
        os.close(fd)


def test_a_message_wakes_the_nursery(ends):
    mine, consumer, watch, _ = ends
    consumer.send(Adopt())
    assert nursery._wait(mine, watch, os.getpid()) is True


def test_the_death_of_the_consumer_ends_the_nursery(ends):
    mine, _, watch, death = ends
    os.write(death, b"x")
    assert nursery._wait(mine, watch, os.getpid()) is False


@pytest.mark.parametrize(("consumer", "is_wanted"), [(os.getppid(), True), (0, False)])
def test_without_pidfds_the_parent_is_asked_for(ends, consumer, is_wanted):
    mine, other, _, _ = ends
    other.send(Adopt())
    assert nursery._wait(mine, None, consumer) is is_wanted


def test_the_nursery_keeps_no_descriptor_of_a_zygote(ends, monkeypatch):
    fd = os.dup(ends[2])
    monkeypatch.setattr(os, "fork", lambda: 77)
    nursery._fork_zygote(ends[0], fd, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
