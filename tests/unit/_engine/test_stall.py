"""Slow or stuck: verdicts from observations."""

from __future__ import annotations

import pytest

from penstock._engine.stall import (
    LEAST_WARN_S,
    MOST_STEP_S,
    Observation,
    Patience,
    Verdict,
    is_sleep,
    warn_after,
)

NOTHING, WARN, STUCK = Verdict.NOTHING, Verdict.WARN, Verdict.STUCK
READ, NANOSLEEP = (0, 3, 0x7F00, 1, 0, 0, 0), (230, 0, 0, 0x7F00, 0, 0, 0)
QUIET = Observation(
    pid=7,
    progress=(3, 0, "fetching", 1),
    cpu_s=1.0,
    io_bytes=10,
    wakes=5,
    state="S",
    wchan="pipe_read",
    call=READ,
)


def looks(*seen, warn_s=4, stuck_s=8, step_s=2.0, tail_s=0.0):
    """The verdicts of looks that are `step_s` apart."""
    patience = Patience(warn_s, stuck_s, "x86_64")
    return [patience.judge(100.0 + step_s * turn, each, tail_s) for turn, each in enumerate(seen)]


def test_a_worker_that_does_nothing_is_warned_about_and_then_stuck():
    assert looks(*[QUIET] * 6) == [NOTHING, NOTHING, WARN, NOTHING, STUCK, STUCK]


@pytest.mark.parametrize(
    "change",
    [{"cpu_s": 1.01}, {"io_bytes": 11}, {"progress": (3, 0, "fetching", 2)}, {"pid": 8}],
    ids=str,
)
def test_whatever_moves_begins_anew(change):
    moved = QUIET._replace(**change)
    assert looks(QUIET, QUIET, moved, moved, moved, moved, moved) == [NOTHING] * 4 + [WARN, NOTHING, STUCK]


@pytest.mark.parametrize(
    "asleep",
    [
        QUIET._replace(call=NANOSLEEP),
        QUIET._replace(call=None, wchan="hrtimer_nanosleep"),
        QUIET._replace(call=(23, 0, 0, 0, 0, 0x7F00, 0)),
        QUIET._replace(state="t"),
    ],
    ids=["clock_nanosleep", "wchan", "select on nothing", "a debugger"],
)
def test_a_deliberate_sleep_is_left_alone(asleep):
    assert set(looks(*[asleep] * 20)) == {NOTHING}


@pytest.mark.parametrize(
    "alive",
    [
        QUIET._replace(state="R"),
        QUIET._replace(call=None, wchan=""),
        QUIET._replace(other_calls=(READ, NANOSLEEP)),
    ],
    ids=["wants to run", "hidden", "another thread sleeps"],
)
def test_a_sign_of_life_is_warned_about_and_never_stuck(alive):
    verdicts = looks(*[alive] * 20)
    assert verdicts.count(WARN) == 1
    assert STUCK not in verdicts


def test_a_main_thread_that_wakes_up_is_warned_about_and_never_stuck():
    verdicts = looks(*(QUIET._replace(wakes=turn) for turn in range(20)))
    assert verdicts.count(WARN) == 1
    assert STUCK not in verdicts


def test_a_machine_whose_calls_are_not_known_needs_the_name_of_the_wait():
    for seen, verdict in ((QUIET._replace(wchan=""), NOTHING), (QUIET, STUCK)):
        patience = Patience(None, 1, "riscv64")
        patience.judge(0, seen)
        assert patience.judge(2, seen) is verdict


@pytest.mark.parametrize("call", [READ, NANOSLEEP, None])
def test_a_stopped_worker_is_stuck_wherever_it_was_stopped(call):
    stopped = QUIET._replace(state="T", call=call, wchan="do_signal_stop" if call else "")
    assert looks(*[stopped] * 5)[-1] is STUCK


def test_there_is_one_warning_for_each_attempt_of_a_ticket():
    again = QUIET._replace(progress=(3, 1, "fetching", 1))
    verdicts = looks(*[QUIET] * 10, *[again] * 10, stuck_s=None)
    assert verdicts.count(WARN) == 2


def test_without_limits_nothing_is_said():
    assert set(looks(*[QUIET] * 100, warn_s=None, stuck_s=None)) == {NOTHING}


def test_a_pause_of_everybody_is_no_stall():
    patience = Patience(60, 60, "x86_64")
    patience.judge(0, QUIET)
    assert patience.judge(10_000, QUIET) is NOTHING
    assert patience.quiet_s == MOST_STEP_S


def test_what_our_own_question_has_changed_is_no_progress():
    patience = Patience(2, 4, "x86_64")
    disturbed = QUIET._replace(wakes=6, cpu_s=1.01)
    assert [patience.judge(now, QUIET) for now in (0, 2)] == [NOTHING, WARN]
    patience.excuse(disturbed)
    assert patience.judge(4, disturbed) is STUCK


@pytest.mark.parametrize(
    ("option", "tail_s", "seconds"),
    [("auto", 0.0, LEAST_WARN_S), ("auto", 7.0, 35.0), (0.5, 7.0, 0.5), (None, 7.0, float("inf"))],
)
def test_a_warning_is_due_after_a_multiple_of_the_tail(option, tail_s, seconds):
    assert warn_after(option, tail_s) == seconds


@pytest.mark.parametrize(
    ("machine", "call", "expected"),
    [
        ("x86_64", (35, 0x7F00, 0), True),
        ("x86_64", NANOSLEEP, True),
        ("aarch64", (115, 0, 0, 0x7F00), True),
        ("aarch64", (101, 0x7F00, 0), True),
        ("aarch64", NANOSLEEP, False),
        ("x86_64", (7, 0x7F00, 0, 1000), True),
        ("x86_64", (7, 0x7F00, 1, 1000), False),
        ("x86_64", (270, 0, 0, 0, 0, 0x7F00), True),
        ("x86_64", (23, 4, 0x7F00, 0, 0, 0x7F00), False),
        ("x86_64", (23,), False),
        ("x86_64", READ, False),
        ("x86_64", (), False),
        ("riscv64", NANOSLEEP, False),
    ],
)
def test_a_sleep_is_known_by_its_call(machine, call, expected):
    assert is_sleep(call, machine) is expected
