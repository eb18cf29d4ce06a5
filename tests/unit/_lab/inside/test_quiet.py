from __future__ import annotations

import gc
import os
import threading

import pytest

from penstock._lab.inside.quiet import forked, uncollected


@pytest.fixture(autouse=True)
def collecting():
    gc.enable()
    yield
    gc.enable()


def test_what_we_allocate_collects_no_garbage_of_the_program():
    collections = []

    def note(phase, _info):
        collections.append(phase)

    def allocate():
        many = [[] for _ in range(100_000)]
        return len(many), len(collections)

    gc.callbacks.append(note)
    try:
        assert uncollected(allocate)() == (100_000, 0)
        assert allocate()[1] > 0
    finally:
        gc.callbacks.remove(note)


def test_the_collector_is_as_it_was_whatever_happens():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        uncollected(fail)()
    assert gc.isenabled()
    gc.disable()
    assert uncollected(gc.isenabled)() is False
    assert not gc.isenabled()


def test_a_process_forked_by_another_thread_meanwhile_collects():
    inside, go_on = threading.Event(), threading.Event()

    def wait():
        inside.set()
        go_on.wait(10)

    thread = threading.Thread(target=uncollected(wait))
    thread.start()
    assert inside.wait(10)
    child = os.fork()
    if child == 0:
        forked()
        os._exit(0 if gc.isenabled() else 1)
    _, status = os.waitpid(child, 0)
    go_on.set()
    thread.join(10)
    assert status == 0
    assert gc.isenabled()
