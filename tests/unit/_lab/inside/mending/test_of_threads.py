"""Threads that a fork does not copy."""

from __future__ import annotations

import asyncio
import os
import queue
import threading

import pytest

from penstock._lab.inside.mending.mend import MendError
from penstock._lab.inside.mending.of_threads import RestartThreads


class Service:
    """Answers from a thread of its own."""

    def __init__(self):
        self.asked = queue.Queue()
        self.answers = queue.Queue()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while (question := self.asked.get()) is not None:
            self.answers.put(question * 2)

    def close(self):
        self.asked.put(None)
        self.thread.join()


def in_child(work):
    """What a forked process answers, as its status; 99 where it does not."""
    pid = os.fork()
    if pid == 0:
        status = 98
        try:
            status = work()
        except queue.Empty:
            status = 99
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def mend():
    made = RestartThreads()
    made.in_process()
    return made


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_thread_of_the_parent_works_in_the_child_again(mend):
    service = Service()

    def ask():
        mend.in_worker(service)
        service.asked.put(21)
        return service.answers.get(timeout=20)

    def ask_without():
        service.asked.put(21)
        return service.answers.get(timeout=0.1)

    assert in_child(ask_without) == 99
    assert in_child(ask) == 42
    service.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_an_event_loop_of_the_parent_runs_in_the_child_again(mend):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def ask():
        mend.in_worker(None)
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 42), loop).result(timeout=20)

    assert in_child(ask) == 42
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_where_there_was_no_thread_nothing_can_be_mended():
    with pytest.raises(MendError, match="no other thread at the fork"):
        RestartThreads().in_worker(None)
