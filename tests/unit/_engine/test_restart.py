"""Who gets a successor, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.restart import LONGEST_WAIT_S, MOST_UNBORN, Restarts


def test_the_first_successors_come_at_once_and_later_ones_wait():
    restarts = Restarts(20)
    waits = [restarts.lost(0) for _ in range(12)]
    assert waits == [
        0,
        0,
        0.1,
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
        LONGEST_WAIT_S,
        LONGEST_WAIT_S,
        LONGEST_WAIT_S,
        LONGEST_WAIT_S,
    ]


def test_an_answer_ends_the_row():
    restarts = Restarts(20)
    assert [restarts.lost(0), restarts.lost(0), restarts.answered(0), restarts.lost(0)] == [0, 0, None, 0]


def test_workers_are_judged_one_by_one():
    restarts = Restarts(20)
    assert [restarts.lost(worker) for worker in (0, 1, 0, 1, 2)] == [0, 0, 0, 0, 0]


def test_without_restarts_there_is_no_successor():
    assert Restarts(0).lost(0) is None


def test_a_fork_that_is_refused_again_and_again_is_given_up():
    restarts = Restarts(20)
    assert [restarts.lost(0, is_unborn=True) is None for _ in range(MOST_UNBORN + 1)] == [
        False
    ] * MOST_UNBORN + [True]


@given(st.integers(0, 5), st.lists(st.sampled_from(["lost", "answered"])))
def test_losses_never_outnumber_answers_by_more_than_the_limit(most, happened):
    restarts, balance = Restarts(most), 0
    for each in happened:
        if each == "answered":
            restarts.answered(0)
            balance = max(0, balance - 1)
        elif restarts.lost(0) is None:
            assert balance == most
        else:
            balance += 1
            assert balance <= most


@given(st.integers(1, 5), st.integers(1, 50))
def test_a_machine_that_kills_now_and_then_goes_on_for_ever(most, times):
    restarts = Restarts(most)
    for _ in range(times):
        assert restarts.lost(0) == 0
        restarts.answered(0)
