"""Warnings about quiet workers, and the end of stuck ones, on a system that follows a script."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from penstock._engine import lookout as module
from penstock._engine.black_box import Report
from penstock._engine.lookout import KILL_LIMIT_S, STALLED, Lookout, Ticket, stack_lines, where
from penstock._engine.stall import Observation
from penstock.errors import WorkerLostError

STACK = 'Current thread 0x1 (most recent call first):\n  File "data.py", line 12 in __getitem__\n'
SEEN = Observation(4121, (3, 0), 1.0, 10, 5, "S", "pipe_read", (0, 3, 0, 1))
TICKET = Ticket(1, 3, [40, 50])


class Watched:
    """Workers that are as the test says."""

    def __init__(self):
        self.seen, self.told = SEEN, Report("fetching", 3, 0, 1, 50)
        self.killed, self.asked = [], 0

    def observe(self, worker):
        return self.seen

    def report(self, worker):
        return self.told

    def ask_stack(self, worker):
        self.asked += 1
        return STACK

    def kill(self, worker, reason):
        self.killed.append((worker, reason))


@pytest.fixture
def clock(monkeypatch):
    """Time that passes with every look; no py-spy."""
    monkeypatch.setattr(module, "native_calls", lambda pid: [])
    made = SimpleNamespace(now=100.0)

    def tick():
        made.now += 2.0
        return made.now

    monkeypatch.setattr(module.time, "monotonic", tick)
    return made


def look(one, backend, times):
    """Look so often; return the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            one.look(backend, [TICKET])
    return [str(each.message) for each in caught]


def test_a_quiet_worker_is_warned_about_once_with_all_that_is_known(clock):
    backend = Watched()
    assert look(Lookout(4, 30.0), backend, 10) == [
        "[PS606] DataLoader worker 1 (pid 4121) has made no progress for 4 s\n"
        "  why:  it was fetching sample index 50 (position 1 in its batch); "
        "it sleeps in the kernel, in `pipe_read`\n"
        "        its last calls, the latest first:\n"
        '          File "data.py", line 12 in __getitem__\n'
        "  next: after 30.0 s it is ended, and its batch is made once more; stall_timeout=None waits for ever"
    ]
    assert backend.asked == 1
    assert not backend.killed


def test_native_calls_are_told_in_place_of_the_python_stack(clock, monkeypatch):
    monkeypatch.setattr(module, "native_calls", lambda pid: ["read (libc)", f"f (x.py:{pid})"])
    (text,) = look(Lookout(4, None), Watched(), 10)
    assert "latest first:\n          read (libc)\n          f (x.py:4121)\n  next:" in text


def test_a_warning_without_a_limit_says_that_nothing_follows(clock):
    (text,) = look(Lookout(4, None), Watched(), 10)
    assert text.endswith("  next: it is left alone, because stall_timeout is None")


def test_a_stopped_worker_is_not_asked(clock):
    backend = Watched()
    backend.seen = SEEN._replace(state="T", wchan="do_signal_stop")
    (text,) = look(Lookout(4, None), backend, 10)
    assert "it is stopped (SIGSTOP)" in text
    assert not backend.asked


def test_a_worker_whose_wait_is_hidden_is_told_by_its_state(clock):
    backend = Watched()
    backend.seen = SEEN._replace(wchan="", call=None)
    (text,) = look(Lookout(4, None), backend, 10)
    assert "its state is S" in text


def test_a_stuck_worker_is_ended_once(clock):
    backend = Watched()
    assert look(Lookout(None, 4), backend, 6) == []
    assert backend.killed == [(1, STALLED)]


def test_the_second_stall_of_a_ticket_is_an_error(clock):
    backend, one = Watched(), Lookout(None, 4)
    look(one, backend, 3)
    backend.seen = SEEN._replace(pid=4200)
    with pytest.raises(WorkerLostError) as caught:
        look(one, backend, 3)
    assert str(caught.value) == (
        "[PS606] DataLoader worker 1 (pid 4200) stalled, and another try does not help\n"
        "  why:  it is the second worker that did not get any further here; "
        "it was fetching sample index 50 (position 1 in its batch); it sleeps in the kernel, in `pipe_read`\n"
        "        its last calls, the latest first:\n"
        '          File "data.py", line 12 in __getitem__\n'
        "  fix:  give the read or the lock that it waits for a deadline of its own; "
        "if it is only slow, raise stall_timeout, or pass stall_timeout=None to wait for ever\n"
        "  more: penstock explain PS606"
    )
    assert len(backend.killed) == 1


def test_a_ticket_of_another_epoch_is_another_ticket(clock):
    backend, one = Watched(), Lookout(None, 4)
    look(one, backend, 3)
    one.begin()
    backend.seen = SEEN._replace(pid=4200)
    look(one, backend, 3)
    assert len(backend.killed) == 2


def test_a_worker_that_the_kernel_does_not_let_go_is_an_error(clock):
    backend, one = Watched(), Lookout(None, 4)
    with pytest.raises(WorkerLostError, match="sent SIGKILL, but the kernel does not let it go"):
        look(one, backend, int(KILL_LIMIT_S))
    assert len(backend.killed) == 1


def test_what_cannot_be_seen_is_left_alone(clock):
    backend = Watched()
    backend.seen = None
    assert look(Lookout(1, 1), backend, 10) == []


def test_a_lookout_without_limits_is_off():
    assert not Lookout().is_on
    assert Lookout("auto").is_on
    assert Lookout(None, 1).is_on


@pytest.mark.parametrize(
    ("warn_s", "timeout_s", "step_s"),
    [(None, None, 2.0), ("auto", 30.0, 2.0), (1, 30.0, 0.25), (10, 0.4, 0.1)],
)
def test_looks_are_often_enough_for_every_limit(warn_s, timeout_s, step_s):
    assert Lookout(warn_s, timeout_s).step_s(2.0) == step_s


@pytest.mark.parametrize(
    ("report", "indices", "words"),
    [
        (Report(""), [1], ""),
        (Report("starting"), None, "it was starting"),
        (Report("collating", 3, 0), [1], "it was collating"),
        (
            Report("fetching", 3, 0, 1, 50),
            [40, 50],
            "it was fetching sample index 50 (position 1 in its batch)",
        ),
        (
            Report("fetching", 3, 0, 1),
            ["a", "b"],
            "it was fetching sample index 'b' (position 1 in its batch)",
        ),
        (Report("fetching", 3, 0, 1), None, "it was fetching the sample at position 1 of its batch"),
        (Report("fetching", 3, 0, 9), [1], "it was fetching the sample at position 9 of its batch"),
    ],
)
def test_a_report_in_words(report, indices, words):
    assert where(report, indices) == words


def test_without_a_stack_there_are_no_lines():
    assert stack_lines("") == []
