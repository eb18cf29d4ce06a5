"""Where a fresh worker takes up the stream of a lost one."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine import resume
from penstock._engine.resume import MOST_BYTES, Journal, Resume
from penstock.errors import WorkerLostError


class Stateful:
    def __init__(self, state=0):
        self.state = state

    def state_dict(self):
        return {"at": self.state}

    def load_state_dict(self, state):
        self.state = state["at"]


class Odd(Stateful):
    def state_dict(self):
        raise ValueError("not now")


def test_a_state_is_loaded_as_it_was_taken():
    taken, other = resume.state_of(Stateful(5)), Stateful()
    resume.load(other, Resume(taken, 0, None, False))
    assert other.state == 5


def test_without_a_state_nothing_is_loaded():
    resume.load(object(), Resume(None, 3, None, False))


@pytest.mark.parametrize("dataset", [Odd(), Stateful(b"x" * MOST_BYTES), Stateful(lambda: 0)])
def test_a_state_that_cannot_be_had_or_is_too_large_is_none(dataset):
    assert resume.state_of(dataset) is None


def test_only_a_dataset_with_both_methods_has_a_state():
    assert resume.has_state(Stateful())
    assert not resume.has_state(object())
    assert not resume.has_state(type("Half", (), {"state_dict": lambda self: 0})())


def test_the_state_of_the_last_answer_counts():
    journal = Journal(2)
    journal.answered(1, b"1")
    journal.answered(1, b"2")
    assert journal.plan(1, [None] * 4) == Resume(b"2", 0, [None] * 4, False)
    assert journal.plan(1, None, is_sharded=True) == Resume(b"2", 0, None, True)


def test_a_worker_that_has_delivered_nothing_begins_anew():
    journal = Journal(2)
    journal.answered(1, None)
    assert journal.plan(0, None) == Resume(None, 0, None, False)
    journal.begin()
    assert journal.plan(1, None) == Resume(None, 0, None, False)


def test_replay_drops_what_was_delivered():
    journal = Journal(1, "replay")
    journal.answered(0, None)
    journal.answered(0, None)
    assert journal.plan(0, [None]) == Resume(None, 2, [None], False)


@pytest.mark.parametrize(("answers", "words"), [(1, "1 batch"), (3, "3 batches")])
def test_otherwise_it_is_an_error_that_names_both_ways_out(answers, words):
    journal = Journal(4)
    for _ in range(answers):
        journal.answered(3, None)
    with pytest.raises(WorkerLostError) as caught:
        journal.plan(3, None)
    assert str(caught.value) == (
        "[PS607] worker 3 died, and nobody knows where its iterable dataset was\n"
        f"  why:  it had delivered {words} of this epoch, and no state with the last of them\n"
        "  fix:  give the dataset `state_dict()` and `load_state_dict(state)`, to go on from there; or, if a "
        "worker's stream is the same each time it is started, pass on_iterable_crash='replay'\n"
        "  more: penstock explain PS607"
    )


def test_a_plan_pickles():
    assert pickle.loads(pickle.dumps(Resume(b"1", 0, [None], True))) == Resume(b"1", 0, [None], True)


@given(st.lists(st.none() | st.binary(max_size=3)))
def test_replay_is_planned_only_without_a_state(states):
    journal = Journal(1, "replay")
    for state in states:
        journal.answered(0, state)
    plan = journal.plan(0, None)
    assert plan.state == (states[-1] if states else None)
    assert plan.tickets == (0 if plan.state is not None else len(states))
