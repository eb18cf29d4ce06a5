"""The processes below one."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from penstock._lab import tree


@pytest.fixture
def family():
    """A shell and what it has started."""
    child = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & sleep 60 & wait"])
    deadline = time.monotonic() + 30
    while [each.name for each in tree.below(child.pid)] != ["sleep"] * 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    yield child
    below = tree.below(child.pid)
    child.kill()
    child.wait()
    tree.kill(below)


@pytest.mark.parametrize("way", [tree.below, tree.quick_below])
def test_children_and_grandchildren_are_found(family, way):
    below = way(os.getpid())
    assert family.pid in {process.pid for process in below}
    assert sum(process.parent == family.pid and process.name == "sleep" for process in below) == 2


def test_a_process_reads_itself():
    me = tree.read(os.getpid())
    assert (me.pid, me.parent, me.is_alive) == (os.getpid(), os.getppid(), True)
    assert me.started > 0


def test_what_is_gone_is_nothing():
    assert tree.read(99999999) is None
    assert tree.threads_of(99999999) == []
    assert tree.children_of(99999999) == []
    assert tree.slurp("/proc/99999999/stat") == ""


def test_the_kill_of_what_is_gone_does_no_harm():
    tree.kill([tree.Process(99999999, 1, "S", 0, "gone", 0)])


def test_only_the_beginning_of_a_large_file_is_read(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 200_000)
    assert len(tree.slurp(str(tmp_path / "large"), 100_000)) == 100_000


def test_a_kernel_without_lists_of_children_is_no_obstacle(family, monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda _: False)
    assert family.pid in {process.pid for process in tree.quick_below(os.getpid())}
