"""Around every test: nothing may be left behind, and a hang ends with a stack.

After each test no child process, thread, descriptor or shared-memory file remains that was not there
before. The nursery (one warm process per consumer, see `_engine/backends/birth.py`) is ended first.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

# What the kernel needs to reap a process or close a socket of a worker that has just been told to end.
SETTLE_S = 3.0


def children(pid: int | None = None) -> set[int]:
    """Every descendant of a process that is not a zombie of somebody else's making."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children"):
        try:
            direct = {int(word) for word in task.read_text().split()}
        except OSError:
            continue
        for child in direct:
            found |= {child} | children(child)
    return found


def descriptors() -> set[str]:
    """What the open descriptors of this process point to, without those that come and go."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{link.name} -> {link.readlink()}")
        except OSError:
            continue
    # "pym-": multiprocessing keeps the memory of its Values for the life of the process;
    # "torch_": so does torch with tensors that a test moved to its shared memory.
    return {text for text in found if not any(name in text for name in ("/proc/", "pym-", "torch_"))}


def shared_files() -> set[str]:
    """Names of ours in /dev/shm: there are never any."""
    return {path.name for path in Path("/dev/shm").iterdir() if path.name.startswith("penstock")}


def threads() -> set[str]:
    """Threads of this process, by name."""
    return {f"{thread.name} ({thread.ident})" for thread in threading.enumerate()}


def _state() -> dict[str, set]:
    return {
        "processes": children(),
        "threads": threads(),
        "descriptors": descriptors(),
        "files in /dev/shm": shared_files(),
    }


def _close_nursery() -> None:
    import sys
    from multiprocessing import resource_sharer

    resource_sharer.stop()  # a thread and a socket that torch's own workers leave in the consumer

    birth = sys.modules.get("penstock._engine.backends.birth")
    if birth is not None:
        birth.close_nursery()


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """Fail a test that leaves a process, thread, descriptor or shared-memory file."""
    before = _state()
    yield
    # A test that failed keeps its frames, and with them its loaders: its own message says more.
    report = getattr(request.node, "rep_call", None)
    if report is not None and report.failed:
        return
    gc.collect()
    _close_nursery()
    deadline = time.monotonic() + SETTLE_S
    while True:
        after = _state()
        left = {kind: after[kind] - before[kind] for kind in after if after[kind] - before[kind]}
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.02)  # the kernel's own clearing up, which nobody announces
        gc.collect()
    assert not left, f"left behind: {left}"


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Let the fixture above see whether the test itself failed."""
    outcome = yield
    report = outcome.get_result()
    setattr(item, f"rep_{report.when}", report)
