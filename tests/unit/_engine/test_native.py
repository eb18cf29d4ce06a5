"""Stacks from a py-spy that the test wrote."""

from __future__ import annotations

import pytest

from penstock._engine import native
from penstock._engine.native import native_calls

DUMP = """\
Process 7: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 7 (idle): "MainThread"
    __read (libc.so.6)
    os_read (python3.11)
    __getitem__ (data.py:41)
    _get (penstock/_engine/fetch.py:107)
    fetch (penstock/_engine/fetch.py:50)
Thread 8 (idle): "other"
    wait (threading.py:331)
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Put a program in the place of py-spy."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def build(text):
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    return build


def prints(text):
    return f"cat <<'END'\n{text}END"


def test_the_calls_of_the_main_thread_are_told_down_to_ours(tool):
    tool(prints(DUMP))
    assert native_calls(7) == ["__read (libc.so.6)", "os_read (python3.11)", "__getitem__ (data.py:41)"]


def test_another_thread_ends_the_list(tool):
    tool(prints(DUMP))
    assert native_calls(8) == ["wait (threading.py:331)"]
    assert native_calls(9) == []


def test_the_list_is_short(tool):
    tool(prints(DUMP))
    assert native_calls(7, most=1) == ["__read (libc.so.6)"]


def test_py_spy_is_asked_about_the_worker(tool, tmp_path):
    tool(f'echo "$@" > {tmp_path}/asked')
    assert native_calls(7) == []
    assert (tmp_path / "asked").read_text() == "dump --native --pid 7\n"


@pytest.mark.parametrize("text", ["exit 1", "echo nonsense", ""])
def test_a_py_spy_that_fails_tells_nothing(tool, text):
    tool(text)
    assert native_calls(7) == []


def test_a_py_spy_that_hangs_is_not_waited_for(tool, monkeypatch):
    monkeypatch.setattr(native, "LIMIT_S", 0.05)
    tool("exec sleep 100")
    assert native_calls(7) == []


def test_without_py_spy_there_is_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native_calls(7) == []
