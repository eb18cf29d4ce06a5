"""The zygote's commands, with a system that forks nobody."""

from __future__ import annotations

import errno
import gc
import os
import signal

import pytest

from penstock._arena import packing
from penstock._base import libc
from penstock._engine import tame, worker
from penstock._engine.backends import zygote as module
from penstock._engine.backends.zygote import Zygote, _is_alive, pidfd
from penstock._engine.channel import Channel, pair
from penstock._engine.messages import Born, Kill, Lost, Quit, Spawn

from .jobs import map_job


@pytest.fixture
def system(monkeypatch):
    """A system in which forks and deaths are a matter of lists."""

    class System:
        forks = 100
        dead = []  # noqa: RUF012
        killed = []  # noqa: RUF012

    def waitpid(pid, options):
        if not System.dead:
            if not options:
                pytest.fail("waits for ever")
            return 0, 0
        return System.dead.pop(0)

    def fork():
        System.forks += 1
        return System.forks

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(os, "waitpid", waitpid)
    monkeypatch.setattr(os, "kill", lambda pid, number: System.killed.append((pid, number)))
    monkeypatch.setattr(module, "pidfd", lambda pid: None)
    monkeypatch.setattr(module, "_is_alive", lambda pid: True)
    for owner, name in ((tame, "tame"), (worker, "warm_up"), (gc, "freeze")):
        monkeypatch.setattr(owner, name, lambda: None)
    System.dead.clear()
    System.killed.clear()
    return System


@pytest.fixture
def zygote(system):
    """A zygote, and the consumer's end of its channel."""
    here, there = pair()
    consumer = Channel(here)
    made = Zygote(Channel(there), map_job(), os.getpid())
    yield made, consumer
    consumer.close()
    made._control.close()


def spare():
    return os.memfd_create("test")


def told(consumer):
    return [parcel.message for parcel in consumer.receive_nowait()]


def test_a_worker_is_forked_on_command(zygote):
    mine, consumer = zygote
    mine._obey(Spawn(3), [spare()])
    assert told(consumer) == [Born(3, 101)]


def test_the_zygote_keeps_no_descriptor_of_a_worker(zygote):
    fd = spare()
    zygote[0]._obey(Spawn(3), [fd])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_refused_fork_is_told(zygote, monkeypatch):
    mine, consumer = zygote

    def fork():
        raise OSError(errno.EAGAIN, "no")

    monkeypatch.setattr(os, "fork", fork)
    mine._obey(Spawn(3), [spare()])
    assert told(consumer) == [Lost(3, 0, errno.EAGAIN)]


@pytest.mark.parametrize(("status", "exitcode"), [(0, 0), (3 << 8, 3), (signal.SIGKILL, -9)])
def test_a_death_is_told_with_its_status(zygote, system, status, exitcode):
    mine, consumer = zygote
    mine._obey(Spawn(3), [spare()])
    system.dead.append((101, status))
    mine._reap()
    assert told(consumer) == [Born(3, 101), Lost(3, 101, exitcode)]


def test_a_child_that_is_no_worker_is_reaped_in_silence(zygote, system):
    mine, consumer = zygote
    mine._obey(Spawn(3), [spare()])
    system.dead.append((999, 0))
    mine._reap()
    assert told(consumer) == [Born(3, 101)]


def test_a_worker_is_ended_on_command(zygote, system):
    mine, _ = zygote
    mine._obey(Spawn(0), [spare()])
    mine._obey(Spawn(1), [spare()])
    mine._obey(Kill(1, 15), [])
    assert system.killed == [(102, 15)]


def test_a_quiet_zygote_ends_on_command(zygote, monkeypatch):
    mine, consumer = zygote
    swapped = []
    monkeypatch.setattr(packing, "swap_large", lambda *arguments: swapped.append(arguments))
    consumer.send(Quit(0.0))
    mine.serve()
    assert swapped == [(mine._job.dataset, mine._job.packed)]


def test_a_zygote_ends_when_the_consumer_hangs_up(zygote):
    mine, consumer = zygote
    consumer.close()
    mine.serve()


def test_a_zygote_ends_when_the_consumer_is_gone(zygote, monkeypatch):
    monkeypatch.setattr(module, "_is_alive", lambda pid: False)
    zygote[0].serve()


def test_a_zygote_that_ends_kills_and_reaps_its_workers(zygote, system):
    mine, consumer = zygote
    mine._obey(Spawn(0), [spare()])
    consumer.send(Quit(0.0))
    system.dead += [(0, 0), (101, signal.SIGKILL)]
    mine.serve()
    assert system.killed == [(101, signal.SIGKILL)]
    assert told(consumer) == [Born(0, 101), Lost(0, 101, -9)]


def test_a_worker_that_exits_within_the_grace_is_not_killed(zygote, system):
    mine, consumer = zygote
    mine._obey(Spawn(0), [spare()])
    consumer.send(Quit(60.0))
    system.dead += [(0, 0), (101, 0)]
    mine.serve()
    assert system.killed == []
    assert told(consumer) == [Born(0, 101), Lost(0, 101, 0)]


def test_leaving_the_consumer_forgets_its_handlers(monkeypatch):
    set_, woken = {}, []
    monkeypatch.setattr(signal, "signal", set_.__setitem__)
    monkeypatch.setattr(signal, "set_wakeup_fd", woken.append)
    monkeypatch.setattr(libc, "name_process", lambda name: None)
    module.leave_consumer()
    assert woken == [-1]
    assert set_ == {
        signal.SIGINT: signal.SIG_IGN,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGCHLD: signal.SIG_DFL,
    }


def test_this_process_is_alive():
    assert _is_alive(os.getpid())


@pytest.mark.parametrize(("failure", "expected"), [(ProcessLookupError, False), (PermissionError, True)])
def test_a_process_of_another_user_is_alive(monkeypatch, failure, expected):
    def kill(pid, number):
        raise failure

    monkeypatch.setattr(os, "kill", kill)
    assert _is_alive(5) is expected


def test_a_process_that_is_not_there_has_no_pidfd():
    assert pidfd(1 << 30) is None


def test_a_system_without_pidfds_has_none(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    assert pidfd(os.getpid()) is None
