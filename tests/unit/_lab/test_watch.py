"""What is seen of a patient while it runs."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from penstock._lab import tree, vitals
from penstock._lab.limits import Limits
from penstock._lab.plan import Plan
from penstock._lab.watch import Watch

HEAVY = "import sys; held = bytearray(b'x' * (64 << 20)); print(); sys.stdin.read()"


@pytest.fixture
def heavy():
    command = [sys.executable, "-c", HEAVY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def watch_over(process, tmp_path):
    patient = SimpleNamespace(pid=process.pid, warden=process.pid)
    return Watch(Plan(log=str(tmp_path / "log")), patient, Limits(memory=32 << 20), None)


def test_memory_runs_out(heavy, tmp_path):
    assert watch_over(heavy, tmp_path)._runs_out([tree.read(heavy.pid)])


def test_where_the_kernel_has_ended_the_heaviest_meanwhile_the_program_goes_on(heavy, tmp_path, monkeypatch):
    watch, alive, weight = watch_over(heavy, tmp_path), [tree.read(heavy.pid)], vitals.weight
    asked = []

    def weigh(pid):
        asked.append(pid)
        if len(asked) == 1:  # that it is too much
            return weight(pid)
        heavy.kill()
        heavy.wait()
        return weight(pid)

    monkeypatch.setattr(vitals, "weight", weigh)

    assert not watch._runs_out(alive)
    assert len(asked) > 1
