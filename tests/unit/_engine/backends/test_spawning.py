"""Descriptors of multiprocessing, by their position on the way."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from multiprocessing import context, reduction

import pytest

from penstock._engine.backends.spawning import Spawning, received


def test_a_descriptor_is_replaced_by_its_position():
    with Spawning() as spawning:
        data = pickle.dumps([reduction.DupFd(1), reduction.DupFd(2)])
    assert [os.fstat(fd).st_ino for fd in spawning.fds] == [os.fstat(fd).st_ino for fd in (1, 2)]
    assert [each.position for each in pickle.loads(data)] == [0, 1]
    spawning.close()
    assert spawning.fds == []


def test_a_position_is_replaced_by_the_descriptor_that_came():
    fd = os.memfd_create("test")
    os.write(fd, b"here")
    with Spawning() as spawning:
        travelling = reduction.DupFd(fd)
    with received([fd]):
        arrived = travelling.detach()
    spawning.close()
    os.close(fd)
    assert os.pread(arrived, 4, 0) == b"here"
    os.close(arrived)


def test_a_connection_travels():
    one, other = multiprocessing.Pipe()
    with Spawning() as spawning:
        data = bytes(reduction.ForkingPickler.dumps(other))
    with received(spawning.fds):
        arrived = pickle.loads(data)
    arrived.send("hello")
    assert one.recv() == "hello"
    for end in (one, other, arrived, spawning):
        end.close()


def test_nothing_is_being_spawned_afterwards():
    with Spawning():
        assert context.get_spawning_popen() is not None
    assert context.get_spawning_popen() is None


def test_nothing_is_being_spawned_after_a_failure():
    with pytest.raises(KeyError), Spawning():
        raise KeyError
    assert context.get_spawning_popen() is None


def test_what_has_arrived_is_forgotten_afterwards():
    with Spawning() as spawning:
        travelling = reduction.DupFd(0)
    spawning.close()
    with received([0]):
        pass
    with pytest.raises(IndexError):
        travelling.detach()
