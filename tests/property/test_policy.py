"""The error policy under any exceptions, tries, counts and indices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock._engine.policy import (
    LONGEST_PAUSE_S,
    MOST_REPLACEMENTS,
    ErrorPolicy,
    decide,
    decide_untouched,
    over_budget,
    pause_s,
    replacements,
)

ACTIONS = st.sampled_from(["raise", "skip", "replace", "retry"])
FINAL = st.sampled_from(["raise", "skip", "replace"])
KINDS = st.sampled_from(
    [Exception, OSError, FileNotFoundError, ConnectionError, BrokenPipeError, ValueError, UnicodeDecodeError]
)
POLICIES = st.builds(
    ErrorPolicy,
    default=ACTIONS,
    by_type=st.dictionaries(KINDS, ACTIONS),
    retries=st.integers(1, 10),
    backoff=st.floats(0, 1e6),
    then=FINAL,
    most=st.none() | st.integers(0, 1000),
    most_rate=st.none() | st.floats(0, 1),
    probation=st.integers(0, 1000),
)


@given(POLICIES, KINDS)
def test_trying_again_comes_to_an_end(policy, kind):
    actions = [decide(policy, kind, tries) for tries in range(1, policy.retries + 3)]
    retried = actions.count("retry")
    assert retried in (0, policy.retries)
    assert actions[:retried] == ["retry"] * retried
    assert set(actions[retried:]) == {decide_untouched(policy, kind)}
    assert decide_untouched(policy, kind) != "retry"


@given(POLICIES, KINDS)
def test_the_decision_is_that_of_the_nearest_named_class(policy, kind):
    named = [base for base in policy.by_type if issubclass(kind, base)]
    nearest = [
        base for base in named if not any(issubclass(other, base) for other in named if other is not base)
    ]
    expected = policy.by_type[nearest[0]] if nearest else policy.default
    assert decide(policy, kind, 1) == expected


@given(POLICIES, KINDS, st.integers(1, 20))
def test_the_flags_agree_with_the_decisions(policy, kind, tries):
    action = decide(policy, kind, tries)
    assert action == "raise" or not policy.is_plain
    assert action != "skip" or policy.can_skip


@given(POLICIES, st.integers(1, 10_000))
def test_pauses_never_shrink_and_never_exceed_the_longest(policy, tries):
    assert 0 <= pause_s(policy, tries) <= pause_s(policy, tries + 1) <= LONGEST_PAUSE_S


@given(POLICIES, st.integers(0, 5000), st.data())
def test_a_budget_that_is_spent_stays_so(policy, drawn, data):
    bad = data.draw(st.integers(0, drawn))
    if over_budget(policy, drawn, bad) is not None:
        assert over_budget(policy, drawn + 1, bad + 1) is not None
        assert over_budget(policy, drawn, drawn) is not None


@given(POLICIES, st.integers(0, 5000))
def test_without_bad_samples_no_budget_is_spent(policy, drawn):
    assert over_budget(policy, drawn, 0) is None


@given(POLICIES, st.integers(0, 5000), st.data())
def test_the_budget_says_no_more_than_its_limits(policy, drawn, data):
    bad = data.draw(st.integers(0, drawn))
    reason = over_budget(policy, drawn, bad)
    is_over = policy.most is not None and bad > policy.most
    if policy.most_rate is not None and drawn >= policy.probation:
        is_over |= bad > policy.most_rate * drawn
    assert (reason is not None) is is_over


@given(st.integers(1, 10**12), st.data())
def test_replacements_are_others_of_the_dataset_and_always_the_same(size, data):
    index = data.draw(st.integers(0, size - 1))
    found = list(replacements(index, size))
    assert found == list(replacements(index, size))
    assert len(found) == (MOST_REPLACEMENTS if size > 1 else 0)
    assert all(0 <= other < size and other != index for other in found)


def test_replacements_are_spread_evenly():
    size = 64
    hits = [0] * size
    for index in range(size):
        for other in replacements(index, size):
            hits[other] += 1
    assert max(hits) < 4 * MOST_REPLACEMENTS
    assert min(hits) > 0
