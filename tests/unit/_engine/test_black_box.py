"""What a worker leaves behind for the consumer to read."""

from __future__ import annotations

import errno
import faulthandler
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine import black_box as module
from penstock._engine.black_box import (
    ASK,
    COLLATING,
    HANDING_OVER,
    IDLE,
    NBYTES,
    STARTING,
    TEXT,
    BlackBox,
    Report,
    last_calls,
)
from penstock.errors import ArenaError


@pytest.fixture
def sides():
    """A box as the consumer and as the worker have it."""
    here = BlackBox.create()
    there = BlackBox.open(os.dup(here.fd))
    yield here, there
    here.close()
    there.close()


def told(box):
    """The report, without the time."""
    return box.read()._replace(tail_s=0.0)


def test_a_box_that_nobody_has_opened_says_nothing(sides):
    assert sides[0].read() == Report("")
    assert sides[0].stack() == ""


def test_a_worker_that_starts_or_waits_has_no_ticket(sides):
    here, there = sides
    there.phase(STARTING)
    assert here.read() == Report("starting")
    there.begin(3, 1)
    there.end()
    assert told(here) == Report("idle")
    there.phase(IDLE)
    assert told(here) == Report("idle")


def test_a_ticket_shows_its_number_its_attempt_and_its_sample(sides):
    here, there = sides
    there.begin(3, 1)
    assert here.read() == Report("fetching", 3, 1)
    there.at(0, 40)
    assert here.read() == Report("fetching", 3, 1, 0, 40)
    there.at(1, -2)
    assert here.read() == Report("fetching", 3, 1, 1, -2)


@pytest.mark.parametrize(("phase", "name"), [(COLLATING, "collating"), (HANDING_OVER, "handing over")])
def test_after_the_samples_there_is_no_position(sides, phase, name):
    here, there = sides
    there.begin(3, 0)
    there.at(1, 2)
    there.phase(phase)
    assert here.read() == Report(name, 3, 0)


def test_the_next_ticket_has_no_position_of_the_last(sides):
    here, there = sides
    there.begin(3, 0)
    there.at(1, 2)
    there.begin(4, 0)
    assert here.read() == Report("fetching", 4, 0)


@pytest.mark.parametrize("index", ["name", (1, 2), None, 1 << 63, -(1 << 63), 1.5], ids=repr)
def test_an_index_that_is_no_small_int_is_known_by_its_position(sides, index):
    here, there = sides
    there.begin(3, 0)
    there.at(5, index)
    assert here.read() == Report("fetching", 3, 0, 5, None)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 9), st.lists(st.integers(-9, 1 << 62)))))
def test_a_report_is_always_of_the_ticket_in_hand(tickets):
    box = BlackBox()
    for number, attempt, indices in tickets:
        box.begin(number, attempt)
        assert told(box) == Report("fetching", number, attempt)
        for position, index in enumerate(indices):
            box.at(position, index)
            assert told(box) == Report("fetching", number, attempt, position, index)
        box.end()
        assert told(box) == Report("idle")


def test_the_tail_is_the_slowest_ticket_and_fades(sides, monkeypatch):
    here, there = sides
    clock = [0]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: clock[0])
    tails = []
    for took_s in (1, 64, 2, 2, 80):
        there.begin(0, 0)
        clock[0] += took_s * 10**9
        there.end()
        tails.append(here.read().tail_s)
    assert tails[:3] == [1.0, 64.0, 63.0]
    assert 61 < tails[3] < 63
    assert tails[4] == 80.0


def test_the_pace_is_not_lost_with_one_slow_ticket(monkeypatch):
    box = BlackBox()
    clock = [0]
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: clock[0])
    paces = []
    for took_ns in (8000, 400, 90_000, 90_000, 300):
        box.begin(0, 0)
        clock[0] += took_ns
        box.end()
        paces.append(box.pace_ns)
    assert paces == [8000, 400, 500, 625, 300]


def test_words_that_user_code_has_scribbled_on_are_no_error(sides):
    sides[1]._words[0] = 77
    assert sides[0].read().phase == ""


def test_a_closed_box_stays_readable(sides):
    here, there = sides
    here.close()
    here.close()
    there.begin(3, 0)
    assert here.fd == -1
    assert here.read() == Report("fetching", 3, 0)


def test_the_worker_cannot_write_past_the_box(sides):
    here, _ = sides
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(here.fd, b"x", NBYTES)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(here.fd, TEXT)


def test_a_refused_box_is_an_error_that_leaves_no_descriptor(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ArenaError) as caught:
        BlackBox.create()
    assert str(caught.value) == (
        f"[PS702] the system refused {NBYTES} bytes of shared memory for a worker's black box\n"
        "  why:  [Errno 28] No space left on device\n"
        "  fix:  see `penstock explain PS702` for the limits that matter\n"
        "  more: penstock explain PS702"
    )


def test_a_worker_that_cannot_map_its_box_works_without(monkeypatch):
    here = BlackBox.create()

    def refuse(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(module.libc, "mmap", refuse)
    there = BlackBox.open(os.dup(here.fd))
    there.begin(3, 0)
    assert here.read() == Report("")
    assert there.fd == -1
    here.close()


# ---- stacks -------------------------------------------------------------------------------------


def write(box, text):
    """As `faulthandler` does."""
    os.lseek(box.fd, TEXT, os.SEEK_SET)
    os.write(box.fd, text.encode())


def test_a_stack_is_the_text_without_the_list_of_modules(sides):
    here, there = sides
    write(there, "Fatal Python error: Aborted\n\n  File x\n\nExtension modules: a, b (total: 2)\n")
    assert here.stack() == "Fatal Python error: Aborted\n  File x"


def test_a_stack_that_fills_the_box_is_cut(sides):
    here, there = sides
    write(there, "x" * NBYTES)
    assert here.stack() == "x" * (NBYTES - TEXT)


def test_a_stack_that_was_asked_for_is_forgotten_with_the_next_ticket(sides):
    here, there = sides
    write(there, "old")
    there.begin(1, 0)
    assert here.stack() == "old"  # nobody has asked: it may be that of a crash
    assert here.ask() == 0
    there.begin(2, 0)
    assert here.stack() == ""
    os.write(there.fd, b"new")
    assert here.stack() == "new"


def test_a_box_whose_descriptor_the_dataset_has_closed_still_takes_tickets(sides):
    here, there = sides
    os.close(os.dup(there.fd))
    there.close()
    here.ask()
    there.begin(2, 0)
    assert here.read() == Report("fetching", 2, 0)


@pytest.fixture
def handlers(monkeypatch):
    """What `faulthandler` was asked for."""
    asked = []
    for name in ("enable", "register", "disable"):
        monkeypatch.setattr(faulthandler, name, lambda *args, _name=name, **_: asked.append((_name, *args)))
    return asked


def test_an_armed_box_takes_crashes_and_questions(sides, handlers):
    here, there = sides
    there.disarm()
    there.arm()
    assert handlers == [("disable",), ("enable",), ("register", ASK)]
    assert here.ask() == ASK


def test_a_signal_that_the_program_uses_is_left_to_it(sides, handlers):
    here, there = sides
    before = signal.signal(ASK, lambda *_: None)
    try:
        there.arm()
    finally:
        signal.signal(ASK, before)
    assert handlers == [("enable",)]
    assert here.ask() == 0


def test_a_box_without_a_descriptor_leaves_the_handlers_alone(handlers):
    box = BlackBox()
    box.disarm()
    box.arm()
    assert handlers == []


def frames(*names):
    return "".join(f'  File "{name}.py", line 1 in f\n' for name in names)


def test_last_calls_are_the_users_in_the_thread_that_was_asked():
    mine = frames("lib", "data", "/x/penstock/_engine/fetch")
    stack = (
        f"Thread 0x0001 (most recent call first):\n{frames('other')}\n"
        f"Current thread 0x0002 (most recent call first):\n{mine}"
    )
    assert last_calls(stack) == ['File "lib.py", line 1 in f', 'File "data.py", line 1 in f']


def test_last_calls_without_a_current_thread_are_of_the_first():
    assert last_calls(f"Thread 0x1 (most recent call first):\n{frames('a', 'b')}") == [
        'File "a.py", line 1 in f',
        'File "b.py", line 1 in f',
    ]


def test_last_calls_are_ours_when_there_are_no_others():
    assert len(last_calls(f"Current thread 0x1:\n{frames('/penstock/_engine/worker')}")) == 1


def test_last_calls_are_few():
    assert len(last_calls(f"Current thread 0x1:\n{frames(*'abcdefghijklmn')}")) == 8


@given(st.text())
def test_last_calls_take_any_text(text):
    assert len(last_calls(text)) <= 8
