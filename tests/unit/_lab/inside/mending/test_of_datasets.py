"""Locks that experiments take out of the way, and lists that they pack."""

from __future__ import annotations

import fcntl
import multiprocessing
import queue
from types import SimpleNamespace

from penstock._lab.inside.mending.of_datasets import FreeLock, NoLocks, PackLists


class Data:
    def __init__(self):
        self.count = multiprocessing.Value("i", 3)
        self.inbox = queue.Queue()


def test_a_queue_goes_on_without_its_locks_and_a_shared_value_keeps_its_value(monkeypatch):
    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, getattr(fcntl, name))  # put back afterwards
    data = Data()
    data.inbox.mutex.acquire()  # by a thread that the fork did not copy
    with data.count.get_lock():
        NoLocks().in_worker(data)
        with data.count.get_lock():
            data.count.value += 1
        data.inbox.put("sample")
        assert data.inbox.get(timeout=5) == "sample"
    assert data.count.value == 4


def test_nobody_waits_long_for_a_condition_that_does_not_come():
    assert FreeLock().wait_for(lambda: False, timeout=0.01) is False
    assert FreeLock().wait_for(lambda: True) is True


class Joining:
    def __init__(self):
        self.words = [f"word {number}" for number in range(20_000)]

    def __call__(self, samples):
        return [self.words[index] for index in samples]


def test_a_large_list_that_collate_holds_is_packed():
    joining = Joining()
    PackLists().before_iter(SimpleNamespace(dataset=range(9), collate_fn=joining), 0)
    assert not isinstance(joining.words, list)
    assert joining([3, 19_999]) == ["word 3", "word 19999"]
