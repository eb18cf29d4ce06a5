"""Which rungs are climbed."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from penstock._clinic.ladder import Question, next_rung, steps


def climb(question, outcome=lambda workers: "ok"):
    """The rungs in the order in which they are tried."""
    seen = {}
    while (workers := next_rung(question, seen)) is not None:
        assert workers not in seen
        seen[workers] = outcome(workers)
    return list(seen)


def test_a_healthy_loader_is_only_asked_for_its_reference():
    assert climb(Question(own=8, cpus=2)) == [0]


def test_a_failure_at_zero_ends_the_ladder():
    assert climb(Question(own=8, where_it_begins=True), lambda workers: "error") == [0]


def test_a_sick_loader_is_climbed_from_below_until_it_fails():
    assert climb(Question(own=8, where_it_begins=True), lambda n: "hang" if n >= 2 else "ok") == [0, 1, 2]


def test_a_slow_loader_is_compared_with_its_own_number_and_that_of_the_cpus():
    assert climb(Question(own=4, is_slow=True, cpus=2)) == [0, 4, 2]
    assert climb(Question(own=2, is_slow=True, cpus=2)) == [0, 2]
    assert climb(Question(own=0, is_slow=True, cpus=2)) == [0]


def test_where_workers_share_a_lock_one_worker_tells_how_much_it_costs():
    assert climb(Question(own=4, is_slow=True, has_lock=True, cpus=2)) == [0, 4, 1, 2]
    assert climb(Question(own=1, is_slow=True, has_lock=True, cpus=2)) == [0, 1]


def test_a_quick_exam_tries_zero_and_the_users_own_number():
    assert climb(Question(own=8, is_slow=True, quick=True)) == [0, 8]
    assert climb(Question(own=8, where_it_begins=True, quick=True)) == [0]


def test_the_users_limit_is_kept():
    assert climb(Question(own=8, is_slow=True, has_lock=True, cpus=4, most=2)) == [0, 1]
    assert climb(Question(own=8, where_it_begins=True, most=2)) == [0, 1, 2]


def test_steps_double_up_to_the_top():
    assert steps(0) == ()
    assert steps(1) == (1,)
    assert steps(6) == (1, 2, 4, 6)
    assert steps(8) == (1, 2, 4, 8)


QUESTIONS = st.builds(
    Question,
    own=st.integers(0, 64),
    where_it_begins=st.booleans(),
    is_slow=st.booleans(),
    has_lock=st.booleans(),
    cpus=st.integers(1, 64),
    quick=st.booleans(),
    most=st.one_of(st.none(), st.integers(0, 64)),
)


@given(QUESTIONS, st.integers(0, 65))
def test_the_ladder_ends_begins_at_zero_and_never_exceeds_what_was_asked_for(question, breaks_at):
    tried = climb(question, lambda workers: "ok" if workers < breaks_at else "hang")
    assert tried[0] == 0
    assert len(tried) <= 10
    most = question.most if question.most is not None else 64
    assert all(workers <= max(question.own, question.cpus) and workers <= most for workers in tried[1:])


@given(QUESTIONS)
def test_nothing_is_climbed_above_a_failure_at_zero_but_by_a_program_that_goes_well(question):
    sick = dataclasses.replace(question, is_slow=False)
    assert climb(sick, lambda workers: "error") == [0]


def test_a_slow_program_that_needs_its_workers_is_climbed_all_the_same():
    slow = Question(own=8, is_slow=True, cpus=2)
    assert climb(slow, lambda workers: "ok" if workers else "error") == [0, 8, 2]
