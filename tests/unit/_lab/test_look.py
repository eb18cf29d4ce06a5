"""A look at live processes: the kernel's side, and Python's."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from penstock._lab import look, stall, tree
from penstock._lab.look import Role


@pytest.fixture
def sleeper():
    """A Python process that sleeps in a function of that name."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time\ndef nap():\n    print(flush=True); time.sleep(60)\nnap()"],
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    deadline = time.monotonic() + 30
    while tree.slurp(f"/proc/{child.pid}/wchan") in {"0", ""} and time.monotonic() < deadline:
        time.sleep(0.01)
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_sleeping_process_is_seen_with_its_stack(sleeper):
    roles = {sleeper.pid: Role("main", loader="a", index=3)}
    (seen,) = look.take([tree.read(sleeper.pid)], roles, window_s=0.05)
    assert (seen.pid, seen.parent, seen.role, seen.loader, seen.index) == (
        sleeper.pid, os.getpid(), "main", "a", 3,
    )  # fmt: skip
    assert seen.main.frames[0].function == "nap"
    assert stall.sleeps(seen.main)
    assert not seen.cpu_moved
    assert not seen.read_moved


def test_a_process_that_computes_moves():
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    child.stdout.readline()
    deadline = time.monotonic() + 30
    moved = False
    while not moved and time.monotonic() < deadline:  # on a busy machine it may not get its turn at once
        moved = look.take([tree.read(child.pid)], {})[0].cpu_moved
    child.kill()
    child.wait()
    child.stdout.close()
    assert moved


def test_a_process_that_is_gone_is_left_out():
    assert look.stacks([99999999]) == {}
    assert look.take([tree.Process(99999999, 1, "Z", 0, "gone", 0)], {}, window_s=0) == ()


def test_without_py_spy_the_kernel_still_tells(sleeper, monkeypatch):
    monkeypatch.setattr(look, "_tool", lambda: None)
    (seen,) = look.take([tree.read(sleeper.pid)], {}, window_s=0.01)
    assert seen.main.frames == ()
    assert seen.main.wchan or seen.main.syscall


def test_a_tool_that_answers_nonsense_leaves_the_stack_empty(sleeper, monkeypatch, tmp_path):
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\necho '{nonsense'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(look, "_tool", lambda: str(tool))
    assert look.stacks([sleeper.pid]) == {}


def test_a_tool_that_never_answers_is_given_up(sleeper, monkeypatch, tmp_path):
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setattr(look, "_tool", lambda: str(tool))
    monkeypatch.setattr(look, "DUMP_S", 0.1)
    assert look.stacks([sleeper.pid]) == {}


def test_a_beat_grows_with_cpu_time():
    before = look.beat(os.getpid(), only_main=True)
    sum(range(2_000_000))
    after = look.beat(os.getpid(), only_main=True)
    assert after.run_s > before.run_s
    assert look.beat(os.getpid(), only_main=False).nbytes > 0


def test_worker_and_sample_are_read_from_torchs_own_frames():
    dump = {
        "frames": [
            {"filename": "/x/train.py", "locals": [{"name": "i", "repr": "4"}]},
            {"filename": "/x/torch/utils/data/_utils/fetch.py", "locals": [{"name": "idx", "repr": "13"}]},
            {
                "filename": "/x/torch/utils/data/_utils/worker.py",
                "locals": [{"name": "worker_id", "repr": "1"}],
            },
        ]
    }
    assert look._in_hand(dump) == (1, 13)
    assert look._in_hand({}) == (None, None)
    assert look._plain("'a.jpg'") == "'a.jpg'"
