"""The two births of a zygote, with nobody born."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import pytest

from penstock._engine.backends import birth
from penstock._engine.backends.birth import ZygoteHandle, cannot_start
from penstock._engine.channel import Channel, ChannelClosed, pair
from penstock._engine.messages import Adopt, Born, Load, Loaded, Lost
from penstock.errors import ShippingError, WorkerLostError

from .jobs import map_job

NOW = 0.0  # a deadline that has passed


def later():
    return time.monotonic() + 60


@pytest.fixture
def handle():
    """A handle, and the zygote's end of its channel."""
    here, there = pair()
    made = ZygoteHandle(Channel(here), 1 << 30, is_child=False), Channel(there)
    yield made
    made[0].leave()
    made[1].close()


class Nursery:
    """Adopts at once, and answers for the zygote."""

    def __init__(self, answer=None):
        self.answer = answer
        self.zygote = None

    def send(self, message, fds):
        assert message == Adopt()
        self.zygote = Channel(socket.socket(fileno=os.dup(fds[0])))
        if self.answer is None:
            self.zygote.close()
        else:
            self.zygote.send(self.answer)


@pytest.fixture
def nursery(monkeypatch):
    """Put a nursery in the place of the real one."""
    made = []

    def build(answer=None):
        made.append(Nursery(answer))
        monkeypatch.setattr(birth, "_nursery", lambda: made[-1])
        return made[-1]

    yield build
    for each in made:
        if each.zygote is not None:
            each.zygote.close()


# ---- the end of a zygote ------------------------------------------------------------------------


def test_the_last_words_of_a_zygote_are_heard(handle):
    mine, zygote = handle
    zygote.send(Born(0, 5))
    zygote.send(Lost(0, 5, 0))
    zygote.close()
    assert mine.wait_end(later()) == [Born(0, 5), Lost(0, 5, 0)]
    assert mine.channel.fileno() == -1


def test_a_zygote_that_does_not_end_is_killed(handle, monkeypatch):
    mine, zygote = handle
    killed = []

    def kill(pid, number):
        killed.append((pid, number))
        zygote.close()

    monkeypatch.setattr(os, "kill", kill)
    mine.wait_end(NOW)
    assert killed == [(1 << 30, signal.SIGKILL)]


def test_a_zygote_that_ended_meanwhile_is_no_trouble(handle, monkeypatch):
    mine, zygote = handle

    def kill(pid, number):
        zygote.close()
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    assert mine.wait_end(NOW) == []


def test_a_child_is_reaped(handle, monkeypatch):
    mine, zygote = handle
    mine._is_child = True
    reaped = []
    monkeypatch.setattr(os, "waitpid", lambda pid, options: reaped.append(pid))
    zygote.close()
    mine.wait_end(later())
    assert reaped == [1 << 30]


def test_a_child_that_somebody_else_reaped_is_no_trouble(handle):
    mine, zygote = handle
    mine._is_child = True
    zygote.close()
    mine.wait_end(later())


# ---- forked -------------------------------------------------------------------------------------


def test_a_refused_fork_is_an_error(monkeypatch):
    def fork():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(WorkerLostError) as caught:
        birth.forked(map_job())
    assert str(caught.value) == (
        "[PS603] workers cannot be started: the system refused to fork the process\n"
        "  why:  [Errno 11] Resource temporarily unavailable\n"
        "  fix:  check free memory and the limit of processes (`ulimit -u`), or lower `num_workers`\n"
        "  more: penstock explain PS603"
    )


def test_a_forked_zygote_is_a_child(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: 4321)
    zygote = birth.forked(map_job())
    assert zygote.pid == 4321
    assert zygote._is_child
    zygote.leave()


# ---- clean --------------------------------------------------------------------------------------


def test_a_clean_zygote_gets_the_job(nursery):
    made = nursery(Loaded(77, ""))
    zygote = birth.clean(map_job())
    assert zygote.pid == 77
    (parcel,) = made.zygote.receive_nowait()
    assert type(parcel.message) is Load
    assert len(parcel.fds) == 1
    os.close(parcel.fds[0])
    zygote.leave()


def test_a_dataset_that_cannot_be_rebuilt_is_an_error(nursery):
    nursery(Loaded(77, "Traceback: no module named x"))
    with pytest.raises(WorkerLostError) as caught:
        birth.clean(map_job())
    assert caught.value.what == "workers cannot be started: the dataset arrived but could not be rebuilt"
    assert caught.value.why == "Traceback: no module named x"


def test_a_clean_zygote_that_ends_at_once_is_an_error(nursery):
    nursery()
    with pytest.raises(WorkerLostError, match="the clean process for workers ended at once"):
        birth.clean(map_job())


def test_a_dataset_that_cannot_go_is_refused_before_anything_is_started(nursery):
    made = nursery()
    with pytest.raises(ShippingError):
        birth.clean(map_job(dataset=(x for x in ())))
    assert made.zygote is None


def test_a_clean_zygote_that_does_not_answer_is_an_error(handle, monkeypatch):
    monkeypatch.setattr(birth, "BIRTH_LIMIT_S", 0.0)
    with pytest.raises(WorkerLostError, match=r"did not answer\n  why:  waited 0\.0 s"):
        birth._await_loaded(handle[0].channel)


def test_a_clean_zygote_is_waited_for_with_an_outbox(handle):
    mine, zygote = handle
    mine.channel.send(Loaded(0, "x" * (1 << 20)))
    assert mine.channel.has_outbox
    zygote.send(Loaded(5, ""))
    assert birth._await_loaded(mine.channel) == Loaded(5, "")


def test_an_error_without_a_reason_says_less():
    assert str(cannot_start("x", "")).splitlines()[:2] == [
        "[PS603] workers cannot be started: x",
        "  fix:  check free memory and the limit of processes (`ulimit -u`), or lower `num_workers`",
    ]


# ---- the nursery --------------------------------------------------------------------------------


class Process:
    def __init__(self, *, is_stubborn=False):
        self.is_stubborn, self.notes = is_stubborn, []

    def poll(self):
        return None

    def wait(self, timeout=None):
        self.notes.append("wait")
        if self.is_stubborn and timeout is not None:
            raise subprocess.TimeoutExpired("nursery", timeout)

    def kill(self):
        self.notes.append("kill")


@pytest.fixture
def running(monkeypatch):
    """A nursery of this process, and its end of the channel."""
    here, there = pair()
    monkeypatch.setattr(birth._Nursery, "channel", Channel(here))
    monkeypatch.setattr(birth._Nursery, "process", Process())
    monkeypatch.setattr(birth._Nursery, "owner", os.getpid())
    yield Channel(there)
    here.close()
    there.close()


def test_without_a_nursery_there_is_nothing_to_end():
    birth.close_nursery()


def test_a_running_nursery_is_used_again(running):
    assert birth._nursery() is birth._Nursery.channel


def test_ending_a_nursery_hangs_up_and_waits(running):
    process = birth._Nursery.process
    birth.close_nursery()
    birth.close_nursery()
    assert process.notes == ["wait"]
    with pytest.raises(ChannelClosed):
        running.receive_nowait()


def test_a_nursery_that_does_not_end_is_killed(running):
    process = birth._Nursery.process = Process(is_stubborn=True)
    birth.close_nursery()
    assert process.notes == ["wait", "kill", "wait"]


def test_the_nursery_of_the_parent_is_left_to_it(running, monkeypatch):
    monkeypatch.setattr(birth._Nursery, "owner", os.getpid() + 1)
    started = []
    monkeypatch.setattr(
        birth, "_start_nursery", lambda: started.append(1) or setattr(birth._Nursery, "channel", 5)
    )
    birth.close_nursery()
    assert birth._nursery() == 5
    assert started == [1]


def test_an_interpreter_that_cannot_be_started_is_an_error(monkeypatch):
    def popen(*args, **options):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(WorkerLostError, match="no fresh interpreter could be started"):
        birth._start_nursery()
