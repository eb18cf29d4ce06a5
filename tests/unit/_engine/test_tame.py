"""One thread per library, for those that are there and those that come."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from penstock._base import libc
from penstock._engine import tame


class Controller:
    def __init__(self):
        self.limits = []

    def limit(self, *, limits):
        self.limits.append(limits)


@pytest.fixture
def machine(monkeypatch):
    """This process, with everything that `tame` touches replaced or put back."""
    made = SimpleNamespace(controllers=[], kept=[], opencv=[], torch=[])

    def controller():
        made.controllers.append(Controller())
        return made.controllers[-1]

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(tame, "_controllers", {})
    monkeypatch.setattr(libc, "keep_freed_memory", made.kept.append)
    monkeypatch.setattr(torch, "set_num_threads", made.torch.append)
    monkeypatch.setitem(sys.modules, "threadpoolctl", SimpleNamespace(ThreadpoolController=controller))
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(setNumThreads=made.opencv.append))
    return made


def test_libraries_that_come_later_are_limited_by_the_environment(machine):
    tame.tame()
    assert {name: os.environ[name] for name in tame.ENVIRONMENT} == tame.ENVIRONMENT


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_the_usual_pools_are_in_the_environment(name):
    assert tame.ENVIRONMENT[name] == "1"


def test_the_pools_that_are_loaded_are_limited(machine):
    tame.tame()
    assert [controller.limits for controller in machine.controllers] == [[1]]


def test_torch_gets_one_thread(machine):
    tame.tame()
    assert machine.torch == [1]


def test_opencv_runs_in_the_calling_thread(machine):
    tame.tame()
    assert machine.opencv == [0]


def test_malloc_keeps_what_a_sample_needs(machine):
    tame.tame()
    assert machine.kept == [tame.KEPT_BYTES]


def test_pools_are_scanned_once_as_long_as_nothing_is_imported(machine):
    tame.scan_pools()
    tame.scan_pools()
    assert len(machine.controllers) == 1


def test_pools_are_scanned_again_after_an_import(machine, monkeypatch):
    tame.scan_pools()
    monkeypatch.setitem(sys.modules, "a_new_library", SimpleNamespace())
    tame.scan_pools()
    assert len(machine.controllers) == 2
    assert list(tame._controllers.values()) == machine.controllers[1:]


def test_without_threadpoolctl_the_rest_is_tamed(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    tame.tame()
    assert machine.torch == [1]


def test_libraries_that_are_not_loaded_are_left_alone(machine, monkeypatch):
    monkeypatch.delitem(sys.modules, "cv2")
    monkeypatch.delitem(sys.modules, "torch")
    tame.tame()
    assert machine.torch == machine.opencv == []


def test_an_opencv_that_fails_is_no_trouble(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace())
    tame.tame()
    assert machine.kept == [tame.KEPT_BYTES]
