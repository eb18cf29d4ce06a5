"""What is seen of a patient while it runs."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from penstock._lab import residue, tree, vitals
from penstock._lab.limits import Limits
from penstock._lab.plan import Plan
from penstock._lab.watch import Watch, crowding

HEAVY = "import sys; held = bytearray(b'x' * (64 << 20)); print(); sys.stdin.read()"


@pytest.fixture
def heavy():
    command = [sys.executable, "-c", HEAVY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def watch_over(process, tmp_path, **plan):
    patient = SimpleNamespace(pid=process.pid, warden=process.pid)
    return Watch(Plan(log=str(tmp_path / "log"), **plan), patient, Limits(memory=32 << 20), None)


@pytest.mark.parametrize(
    ("busy_s", "idle_s", "own_s", "share"),
    [
        (20.0, 0.0, 10.0, 0.5),  # two programs share all
        (20.0, 0.0, 20.0, 0.0),  # it has all to itself
        (12.0, 8.0, 6.0, 0.0),  # there was room for both
        (18.0, 2.0, 8.0, 0.4),
        (0.0, 0.0, 0.0, 0.0),  # unknown
    ],
)
def test_others_take_time_from_a_program_where_the_machine_is_full(busy_s, idle_s, own_s, share):
    assert crowding(busy_s, idle_s, own_s) == pytest.approx(share)


@pytest.mark.parametrize(
    ("crowded_s", "has_failed", "at", "is_enough"),
    [
        (0.0, False, 0.0, True),
        (4.0, False, 3.0, False),
        (4.0, False, 4.5, True),
        (4.0, True, 0.0, True),
        (40.0, False, 9.0, False),
        (40.0, False, 10.0, True),
    ],
)
def test_where_others_have_the_cpus_enough_comes_later(
    heavy, tmp_path, monkeypatch, crowded_s, has_failed, at, is_enough
):
    watch = watch_over(heavy, tmp_path, late_s=10.0)
    monkeypatch.setattr(watch, "_crowding_s", lambda _: crowded_s)
    watch.journal.why_enough, watch.journal.is_by_time = "12 s of batches", True
    watch.journal.has_failed = has_failed
    watch._is_enough(100.0)
    assert watch._is_enough(100.0 + at) is is_enough


def note_orphans(watch, at, names, monkeypatch, *, nbytes=0):
    """One look at names in /dev/shm that dead processes have left, which take so much."""
    monkeypatch.setattr(residue, "orphaned", lambda *_: dict.fromkeys(names, 7))
    monkeypatch.setattr(residue, "mapped_names", lambda _: set())
    monkeypatch.setattr(residue, "taken", lambda _: nbytes)
    watch._note_orphans(at, [])


def test_the_room_that_names_of_the_dead_take_is_asked_only_before_a_failure(heavy, tmp_path, monkeypatch):
    watch = watch_over(heavy, tmp_path)
    note_orphans(watch, 10.0, ["a"], monkeypatch, nbytes=5)
    note_orphans(watch, 10.5, ["a", "b"], monkeypatch, nbytes=50)  # too soon for another look
    assert (set(watch._orphaned), watch._orphaned_nbytes) == ({"a"}, 5)
    watch.journal.has_failed = True
    note_orphans(watch, 12.0, ["a", "b", "c"], monkeypatch, nbytes=90)
    assert (set(watch._orphaned), watch._orphaned_nbytes) == ({"a", "b", "c"}, 5)


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
