"""Which sample kills: proof, not suspicion."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.suspect import FOREIGN, MOST, PROOF_FOREIGN, PROOF_OWN, Suspects, Verdict

AGAIN, HOPELESS = Verdict(None, is_hopeless=False), Verdict(None, is_hopeless=True)
SEGV, KILL = -signal.SIGSEGV, -signal.SIGKILL


@pytest.mark.parametrize("status", [SEGV, -signal.SIGABRT, -signal.SIGBUS, 0, 1, 137], ids=str)
def test_two_deaths_of_its_own_at_one_sample_are_proof(status):
    suspects = Suspects()
    assert suspects.lost(3, 5, status) == AGAIN
    assert suspects.lost(3, 5, status) == Verdict(5, is_hopeless=False)


def test_the_first_death_may_have_been_seen_by_nobody():
    suspects = Suspects()
    assert [suspects.lost(3, place, SEGV) for place in (None, 5, 5)] == [
        AGAIN,
        AGAIN,
        Verdict(5, is_hopeless=False),
    ]


def test_a_signal_from_outside_takes_three():
    suspects = Suspects()
    assert [suspects.lost(3, 5, KILL) for _ in range(3)] == [AGAIN, AGAIN, Verdict(5, is_hopeless=False)]


def test_random_kills_accuse_nobody():
    suspects = Suspects()
    assert [suspects.lost(number, 5, KILL) for number in range(1000)] == [AGAIN] * 1000


def test_a_ticket_that_kills_outside_of_any_sample_is_given_up():
    suspects = Suspects()
    assert [suspects.lost(3, None, SEGV) for _ in range(MOST)] == [AGAIN] * (MOST - 1) + [HOPELESS]


def test_an_answer_clears_the_ticket():
    suspects = Suspects()
    suspects.lost(3, 5, SEGV)
    suspects.answered(3)
    assert suspects.lost(3, 5, SEGV) == AGAIN


def test_two_samples_of_one_ticket_are_found_one_after_the_other():
    suspects = Suspects()
    found = [suspects.lost(3, place, SEGV).condemned for place in (2, 2, 7, 7)]
    assert found == [None, 2, None, 7]


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from([SEGV, KILL, 1]))))
def test_a_ticket_is_never_tried_for_ever(deaths):
    suspects, rounds = Suspects(), 0
    for position, status in deaths:
        verdict = suspects.lost(0, position, status)
        if verdict.is_hopeless:
            return
        rounds = 0 if verdict.condemned is not None else rounds + 1
        assert rounds < MOST + 4  # at most four samples can have left a death each behind


@given(st.integers(0, 9), st.lists(st.sampled_from([SEGV, KILL, 1]), min_size=1, max_size=4))
def test_proof_is_what_it_is_said_to_be(position, statuses):
    suspects = Suspects()
    for count in range(1, len(statuses) + 1):
        seen = statuses[:count]
        proof = PROOF_FOREIGN if any(each in FOREIGN for each in seen) else PROOF_OWN
        verdict = suspects.lost(0, position, seen[-1])
        assert (verdict.condemned is not None) == (count >= proof)
        if verdict.condemned is not None:
            return
