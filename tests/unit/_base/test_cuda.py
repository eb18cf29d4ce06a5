"""Waiting for the device, with a driver that only takes notes."""

from __future__ import annotations

import ctypes

import pytest
import torch

from penstock._base import cuda


class Driver:
    """Two devices; the second is not in use."""

    def __init__(self, refused=0):
        self.notes = []
        self.cuCtxRecordEvent = lambda context, mark: self.notes.append("record") or refused

    def cuDeviceGetCount(self, count):
        count._obj.value = 2

    def cuDevicePrimaryCtxGetState(self, device, flags, is_active):
        is_active._obj.value = device == 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        self.notes.append(f"retain {device}")

    def cuDevicePrimaryCtxRelease_v2(self, device):
        self.notes.append(f"release {device}")

    def cuCtxSetCurrent(self, context):
        assert isinstance(context, ctypes.c_void_p)

    def cuEventCreate(self, mark, flags):
        assert flags == 3

    def cuEventSynchronize(self, mark):
        self.notes.append("wait")

    def cuEventDestroy_v2(self, mark):
        self.notes.append("destroy")


@pytest.fixture
def driver(monkeypatch):
    """Install a driver and forget all of it afterwards."""

    def install(driver):
        monkeypatch.setattr(cuda, "_is_watching", True)
        monkeypatch.setattr(cuda, "_driver", lambda: driver)
        return driver

    return install


def test_every_device_in_use_is_marked_and_waited_for(driver):
    notes = driver(Driver()).notes
    cuda.wait_devices()
    assert notes == ["retain 0", "release 0", "record", "wait", "destroy"]


@pytest.mark.parametrize("broken", ["old", "refusing", "missing"])
def test_without_such_a_driver_every_device_is_synchronised(driver, monkeypatch, broken):
    fake = Driver(refused=1)
    if broken == "old":
        del fake.cuCtxRecordEvent
    driver(fake)
    if broken == "missing":
        monkeypatch.setattr(cuda, "_driver", lambda: ctypes.CDLL("libcuda-that-is-not-there.so"))
    synchronised = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronised.append)
    cuda.wait_devices()
    assert synchronised == [0, 1]


@pytest.fixture
def graph(monkeypatch):
    """A CUDA graph class whose captures are watched."""

    class Graph:
        def capture_begin(self, *args, **options):
            if args == ("fail",):
                raise RuntimeError("no capture")

        def capture_end(self):
            pass

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(cuda, "_is_watching", False)
    monkeypatch.setattr(cuda, "_captures", 0)
    cuda._watch_captures()
    return Graph()


def test_a_capture_is_counted_while_it_runs(graph):
    graph.capture_begin()
    assert cuda._captures == 1
    graph.capture_end()
    assert cuda._captures == 0


def test_a_capture_that_fails_to_begin_is_not_counted(graph):
    with pytest.raises(RuntimeError, match="no capture"):
        graph.capture_begin("fail")
    assert cuda._captures == 0


def test_a_capture_that_began_before_the_watch_only_ends(graph):
    graph.capture_end()
    assert cuda._captures == 0


def test_captures_are_watched_once(graph):
    before = type(graph).capture_begin
    cuda._watch_captures()
    assert type(graph).capture_begin is before
