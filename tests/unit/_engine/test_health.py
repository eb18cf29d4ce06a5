"""Proof that nobody can wake a worker, from what the kernel shows."""

from __future__ import annotations

import os

import pytest

from penstock._engine import health
from penstock._engine.health import Look, is_stuck, look

FUTEX = 202
PRIVATE_WAIT, PRIVATE_WAIT_BITSET, SHARED_WAIT, PRIVATE_WAKE = 128, 128 | 9, 0, 129
STUCK = Look(1, 55, (FUTEX, 0x7F00, PRIVATE_WAIT, 2, 0, 0, 0))


@pytest.fixture
def proc(tmp_path):
    """A /proc with one process, 7."""

    def build(status="Name:\tpython\nThreads:\t1\nvoluntary_ctxt_switches:\t55\n", syscall="running\n"):
        (tmp_path / "7").mkdir()
        (tmp_path / "7/status").write_text(status)
        (tmp_path / "7/syscall").write_text(syscall)
        return tmp_path

    return build


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("202 0x7f00 0x80 0x2 0x0 0x0 0x0 0x7ffc 0x7f11\n", (202, 0x7F00, 0x80, 2, 0, 0, 0)),
        ("running\n", ()),
        ("-1 0x7ffc 0x7f11\n", ()),
    ],
)
def test_a_look_shows_the_system_call(proc, text, call):
    assert look(7, proc(syscall=text)) == Look(1, 55, call)


def test_a_process_that_is_gone_cannot_be_looked_at(tmp_path):
    assert look(7, tmp_path) is None


def test_this_process_can_be_looked_at():
    seen = look(os.getpid())
    assert seen is None or seen.threads >= 1


@pytest.mark.parametrize("operation", [PRIVATE_WAIT, PRIVATE_WAIT_BITSET, PRIVATE_WAIT | 256])
def test_a_private_wait_without_a_deadline_is_stuck(operation):
    stuck = STUCK._replace(call=(FUTEX, 0x7F00, operation, 2, 0, 0, 0))
    assert is_stuck(stuck, stuck, "x86_64")


@pytest.mark.parametrize(
    "seen",
    [
        STUCK._replace(threads=2),
        STUCK._replace(call=()),
        STUCK._replace(call=(35, 0x7F00, PRIVATE_WAIT, 2, 0, 0, 0)),
        STUCK._replace(call=(FUTEX, 0x7F00, PRIVATE_WAIT, 2, 0x7F44, 0, 0)),
        STUCK._replace(call=(FUTEX, 0x7F00, SHARED_WAIT, 2, 0, 0, 0)),
        STUCK._replace(call=(FUTEX, 0x7F00, PRIVATE_WAKE, 2, 0, 0, 0)),
        None,
    ],
    ids=["another thread", "running", "a sleep", "a deadline", "shared", "a wake", "gone"],
)
def test_anything_else_is_not_stuck(seen):
    assert not is_stuck(seen, seen, "x86_64")


@pytest.mark.parametrize(
    "before",
    [None, STUCK._replace(switches=54), STUCK._replace(call=(FUTEX, 0x7F08, PRIVATE_WAIT, 2, 0, 0, 0))],
    ids=["first look", "it was awake", "another lock"],
)
def test_what_has_changed_between_two_looks_is_not_stuck(before):
    assert not is_stuck(before, STUCK, "x86_64")


def test_every_machine_has_its_own_number():
    arm = STUCK._replace(call=(98, *STUCK.call[1:]))
    assert is_stuck(arm, arm, "aarch64")
    assert not is_stuck(STUCK, STUCK, "aarch64")


def test_a_machine_that_is_not_known_has_no_stuck_workers():
    assert not is_stuck(STUCK, STUCK, "riscv64")
    assert "riscv64" not in health._FUTEX
