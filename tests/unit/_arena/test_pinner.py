"""Pinned slabs, with a CUDA runtime that only takes notes."""

from __future__ import annotations

from queue import SimpleQueue

import pytest
import torch

from penstock._arena import pinner as module
from penstock._arena.pinner import Pinner, _settle_all
from penstock._base import cuda


class Runtime:
    def __init__(self, status=0):
        self.status, self.notes = status, []

    def cudaHostRegister(self, address, nbytes, flags):
        self.notes.append(("register", address, nbytes, flags))
        return self.status

    def cudaHostUnregister(self, address):
        self.notes.append(("unregister", address))


@pytest.fixture
def pinner(monkeypatch):
    """A pinner without its thread."""
    monkeypatch.setattr(module.threading, "Thread", lambda **_: type("T", (), {"start": lambda self: None})())
    return Pinner(lambda slab: None)


def settle(monkeypatch, slabs, wait=lambda: None):
    """Run the thread's loop here; return what was settled, and how often the device was waited for."""
    queue, settled, waits = SimpleQueue(), [], []

    def noted():
        waits.append(len(waits))
        wait()

    monkeypatch.setattr(cuda, "wait_devices", noted)
    for slab in slabs:
        queue.put(slab)
    _settle_all(queue, settled.append)
    return settled, len(waits)


def test_slabs_that_settle_together_share_one_wait(monkeypatch):
    assert settle(monkeypatch, [1, 2, 3, None]) == ([1, 2, 3], 1)


def test_a_device_in_a_bad_state_does_not_keep_the_slabs(monkeypatch):
    def fail():
        raise RuntimeError("CUDA error")

    assert settle(monkeypatch, [1, None], fail) == ([1], 1)


def test_an_idle_pinner_ends_at_once(monkeypatch):
    assert settle(monkeypatch, [None, 1]) == ([], 0)


def test_a_slab_is_free_only_after_the_wait(monkeypatch):
    settled = []
    monkeypatch.setattr(cuda, "wait_devices", lambda: settled.append("waited"))
    queue = SimpleQueue()
    queue.put(7)
    queue.put(None)
    _settle_all(queue, settled.append)
    assert settled == ["waited", 7]


def test_the_thread_settles_what_is_released(monkeypatch):
    monkeypatch.setattr(cuda, "wait_devices", lambda: None)
    settled = SimpleQueue()
    pinner = Pinner(settled.put)
    pinner.settle(4)
    assert settled.get(timeout=10) == 4
    pinner.close()
    pinner._thread.join()


def test_a_mapping_is_pinned_for_as_long_as_it_exists(pinner, segment, monkeypatch, without_collector):
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    segment.reserve(100)
    mapping = segment.map()
    address = mapping.address
    pinner.register(mapping)
    assert runtime.notes == [("register", address, 100, 1)]
    del mapping
    assert runtime.notes[1:] == [("unregister", address)]


def test_a_mapping_is_unpinned_before_it_is_unmapped(pinner, segment, monkeypatch, without_collector):
    order = []
    runtime = Runtime()
    runtime.cudaHostUnregister = lambda address: order.append("unregister")
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    real = module.Mapping.__init__.__globals__["libc"].munmap
    monkeypatch.setattr(
        module.Mapping.__init__.__globals__["libc"],
        "munmap",
        lambda address, nbytes: (order.append("unmap"), real(address, nbytes)),
    )
    segment.reserve(100)
    mapping = segment.map()
    pinner.register(mapping)
    del mapping
    assert order == ["unregister", "unmap"]


def test_a_mapping_that_the_driver_refused_is_not_unpinned(pinner, segment, monkeypatch, without_collector):
    runtime = Runtime(status=2)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    segment.reserve(100)
    mapping = segment.map()
    pinner.register(mapping)
    del mapping
    assert len(runtime.notes) == 1
