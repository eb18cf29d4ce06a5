"""Workers as the kernel shows them."""

from __future__ import annotations

import os

import pytest

from penstock._engine.sight import observe
from penstock._engine.stall import Observation

SLEEP, READ = (
    "230 0x0 0x0 0x7f00 0x7f40 0x0 0x0 0x7ffc 0x7f11\n",
    "0 0x3 0x7f00 0x1 0x0 0x0 0x0 0x7ffc 0x7f11\n",
)
IO = "rchar: 1\nwchar: 20\nsyscr: 9\nsyscw: 9\nread_bytes: 300\nwrite_bytes: 4000\ncancelled_write_bytes: 0\n"


@pytest.fixture
def proc(tmp_path):
    """A /proc to which processes are added."""

    def add(
        pid,
        *,
        state="S",
        ticks=(1, 2, 3, 4),
        syscall=READ,
        threads=None,
        children="",
        hidden=(),
        wchan="pipe_read",
    ):
        home = tmp_path / str(pid)
        home.mkdir()
        fields = [state, *["0"] * 10, *map(str, ticks), "20", "0"]
        files = {
            "stat": f"{pid} (py) thon)) {' '.join(fields)}\n",
            "status": "Name:\tpython\nvoluntary_ctxt_switches:\t55\nnonvoluntary_ctxt_switches:\t7\n",
            "io": IO,
            "syscall": syscall,
            "wchan": wchan,
        }
        for name in files.keys() - set(hidden):
            (home / name).write_text(files[name])
        for thread, call in {pid: syscall, **(threads or {})}.items():
            (home / "task" / str(thread)).mkdir(parents=True)
            (home / "task" / str(thread) / "syscall").write_text(call)
            (home / "task" / str(thread) / "children").write_text(children if thread == pid else "")
        return tmp_path

    return add


def test_a_worker_is_seen_with_its_time_its_bytes_and_its_wait(proc):
    hertz = os.sysconf("SC_CLK_TCK")
    assert observe(7, (3, 0), proc(7)) == Observation(
        pid=7,
        progress=(3, 0),
        cpu_s=10 / hertz,
        io_bytes=4321,
        wakes=55,
        state="S",
        wchan="pipe_read",
        call=(0, 3, 0x7F00, 1, 0, 0, 0),
        other_calls=(),
    )


def test_children_and_threads_count(proc):
    root = proc(7, threads={8: SLEEP}, children="9 ")
    proc(9, ticks=(100, 0, 0, 0), children="10 11")
    proc(10)
    seen = observe(7, (), root)
    assert seen.cpu_s == 120 / os.sysconf("SC_CLK_TCK")
    assert seen.io_bytes == 3 * 4321
    assert sorted(call[0] for call in seen.other_calls) == [0, 0, 230]


def test_a_worker_that_is_gone_or_dead_is_not_seen(proc, tmp_path):
    assert observe(7, (), tmp_path) is None
    assert observe(8, (), proc(8, state="Z")) is None


def test_what_is_hidden_is_left_out(proc):
    seen = observe(7, (), proc(7, hidden=["io", "syscall", "wchan"]))
    assert (seen.io_bytes, seen.call, seen.wchan) == (0, None, "")


@pytest.mark.parametrize(("text", "call"), [("running\n", ()), ("-1 0x7ffc 0x7f11\n", ()), ("", ())])
def test_a_thread_outside_of_a_call_is_in_none(proc, text, call):
    assert observe(7, (), proc(7, syscall=text, wchan="0")).call == call


def test_this_process_can_be_seen():
    seen = observe(os.getpid(), ())
    assert seen.cpu_s > 0
    assert seen.state == "R"
