"""The order in which an engine closes, with a zygote that only takes notes."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from penstock._engine import shutdown
from penstock._engine.backends.process import ProcessBackend
from penstock._engine.channel import ChannelClosed
from penstock._engine.messages import Born, Lost, Quit


class End:
    """A channel's end."""

    def __init__(self, notes, name, fd=5):
        self.notes, self.name, self.fd = notes, name, fd

    def fileno(self):
        return self.fd

    def hang_up(self):
        self.notes.append(f"hang up {self.name}")

    def send(self, message):
        if self.fd == 6:
            raise ChannelClosed
        self.notes.append(message)


@pytest.fixture
def backend():
    """A process backend without processes."""
    notes = []

    def build(fd=5, owner=None):
        made = ProcessBackend.__new__(ProcessBackend)
        made.notes = notes
        made._owner = os.getpid() if owner is None else owner
        made.channels = {worker: End(notes, f"worker {worker}") for worker in range(2)}
        made.processes = [SimpleNamespace(_exitcode=None) for _ in range(2)]
        made.zygote = SimpleNamespace(
            channel=End(notes, "zygote", fd),
            wait_end=lambda deadline: words(notes),
            end=lambda: notes.append("end"),
        )
        made.reclaim = lambda: notes.append("reclaim")
        return made

    return build


def words(notes):
    notes.append("wait for the end")
    return [Born(0, 10), Lost(0, 10, 0), Lost(1, 11, -9)]


def test_the_order_is_hang_up_quit_wait_reclaim(backend):
    made = backend()
    shutdown.close(made)
    assert made.notes == [
        "hang up worker 0",
        "hang up worker 1",
        Quit(shutdown.GRACE_S),
        "wait for the end",
        "end",
        "reclaim",
    ]


def test_the_exit_status_of_every_worker_is_noted(backend):
    made = backend()
    shutdown.close(made)
    assert [process._exitcode for process in made.processes] == [0, -9]


def test_a_zygote_that_is_dead_already_is_waited_for(backend):
    made = backend(fd=6)
    shutdown.close(made)
    assert made.notes[2:] == ["wait for the end", "end", "reclaim"]


def test_a_zygote_whose_channel_is_closed_is_not_waited_for(backend):
    made = backend(fd=-1)
    shutdown.close(made)
    assert made.notes[2:] == ["end", "reclaim"]


def test_an_interrupted_wait_ends_the_zygote_all_the_same(backend):
    made = backend()

    def wait_end(deadline):
        raise KeyboardInterrupt

    made.zygote.wait_end = wait_end
    with pytest.raises(KeyboardInterrupt):
        shutdown.close(made)
    assert made.notes[-2:] == ["end", "reclaim"]


def test_in_a_fork_nothing_happens(backend):
    made = backend(owner=1)
    shutdown.close(made)
    assert made.notes == []


def test_any_other_backend_closes_itself():
    called = []
    shutdown.close(SimpleNamespace(close=lambda: called.append(1)))
    assert called == [1]
