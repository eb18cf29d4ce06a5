"""What becomes of a bad sample, and when there are too many."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

import penstock
from penstock._engine.policy import (
    LONGEST_PAUSE_S,
    ErrorPolicy,
    decide,
    decide_untouched,
    over_budget,
    pause_s,
    policy_of,
)
from penstock.errors import SettingsError, SettingsTypeError

# ---- the value ----------------------------------------------------------------------------------


def test_the_policy_is_public():
    assert penstock.ErrorPolicy is ErrorPolicy
    assert ErrorPolicy.__module__ == "penstock"


def test_without_arguments_everything_raises():
    assert ErrorPolicy().is_plain
    assert ErrorPolicy() == policy_of("raise")


def test_a_policy_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        ErrorPolicy().default = "skip"


def test_a_policy_keeps_its_own_copy_of_the_types():
    given = {OSError: "skip"}
    policy = ErrorPolicy(by_type=given)
    given.clear()
    assert policy.by_type == {OSError: "skip"}


def test_a_policy_can_be_pickled_and_hashed():
    policy = ErrorPolicy("skip", {OSError: "retry"}, most=3)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(policy) == hash(ErrorPolicy("skip", {}, most=3))


@pytest.mark.parametrize("action", ["raise", "skip", "replace", "retry"])
def test_a_word_is_a_policy(action):
    assert policy_of(action) == ErrorPolicy(action)


def test_a_policy_is_taken_as_it_is():
    policy = ErrorPolicy("skip")
    assert policy_of(policy) is policy


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        (ErrorPolicy("skip"), True),
        (ErrorPolicy(by_type={OSError: "skip"}), True),
        (ErrorPolicy("retry", then="skip"), True),
        (ErrorPolicy("replace", then="skip"), False),
        (ErrorPolicy("retry", then="replace"), False),
        (ErrorPolicy(), False),
    ],
)
def test_a_policy_knows_whether_it_may_skip(policy, answer):
    assert policy.can_skip is answer


# ---- decisions ----------------------------------------------------------------------------------


def test_the_nearest_class_decides():
    policy = ErrorPolicy("raise", {Exception: "skip", OSError: "replace", FileNotFoundError: "raise"})
    kinds = [ValueError, OSError, PermissionError, FileNotFoundError, KeyboardInterrupt]
    assert [decide(policy, kind, 1) for kind in kinds] == ["skip", "replace", "replace", "raise", "raise"]


def test_a_sample_is_tried_again_so_often_and_then_no_more():
    policy = ErrorPolicy("retry", retries=2, then="skip")
    assert [decide(policy, OSError, tries) for tries in (1, 2, 3)] == ["retry", "retry", "skip"]


def test_what_must_not_be_touched_is_not_tried_again():
    assert decide_untouched(ErrorPolicy("retry", then="replace"), OSError) == "replace"


def test_pauses_double_up_to_a_minute():
    policy = ErrorPolicy("retry", backoff=0.5)
    assert [pause_s(policy, tries) for tries in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert pause_s(policy, 5000) == LONGEST_PAUSE_S


# ---- the budget ---------------------------------------------------------------------------------


def test_without_limits_there_is_no_budget():
    assert over_budget(ErrorPolicy("skip"), 10, 10) is None


def test_the_limit_itself_is_allowed():
    assert over_budget(ErrorPolicy("skip", most=2), 10, 2) is None
    assert over_budget(ErrorPolicy("skip", most=2), 10, 3) == (
        "3 bad samples of 10 drawn are more than most=2"
    )


def test_the_rate_counts_after_probation():
    policy = ErrorPolicy("skip", most_rate=0.05, probation=100)
    assert over_budget(policy, 99, 99) is None
    assert over_budget(policy, 100, 5) is None
    assert over_budget(policy, 100, 6) == ("6 bad samples of 100 drawn are 6.00%, more than most_rate=0.05")


# ---- refusals -----------------------------------------------------------------------------------


def refusal(**options):
    with pytest.raises(SettingsError) as caught:
        ErrorPolicy(**options)
    return str(caught.value)


def test_an_unknown_action_is_refused():
    assert refusal(default="skpi") == (
        "[PS002] ErrorPolicy.default option should be one of 'raise', 'skip', 'replace', 'retry'\n"
        "  why:  got ErrorPolicy.default='skpi'\n"
        "  fix:  the nearest allowed value is ErrorPolicy.default='skip'\n"
        "  more: penstock explain PS002"
    )


def test_retrying_after_the_retries_is_refused():
    assert refusal(then="retry") == (
        "[PS002] ErrorPolicy.then option should be one of 'raise', 'skip', 'replace'\n"
        "  why:  got ErrorPolicy.then='retry'\n"
        "  fix:  the nearest allowed value is ErrorPolicy.then='raise'\n"
        "  more: penstock explain PS002"
    )


def test_an_action_for_what_is_no_exception_is_refused():
    assert refusal(by_type={"OSError": "skip"}) == (
        "[PS001] ErrorPolicy.by_type key option should be a type of exceptions\n"
        "  why:  got ErrorPolicy.by_type key='OSError', of type str\n"
        '  fix:  pass a dict such as {OSError: "retry"}\n'
        "  more: penstock explain PS001"
    )


def test_a_rate_above_one_is_refused():
    assert refusal(most_rate=5) == (
        "[PS002] ErrorPolicy.most_rate option should be from 0 to 1\n"
        "  why:  got ErrorPolicy.most_rate=5\n"
        "  fix:  the nearest allowed value is ErrorPolicy.most_rate=1\n"
        "  more: penstock explain PS002"
    )


def test_no_retries_are_refused():
    assert refusal(retries=0) == (
        "[PS002] ErrorPolicy.retries option should be at least 1\n"
        "  why:  got ErrorPolicy.retries=0\n"
        "  fix:  the nearest allowed value is ErrorPolicy.retries=1\n"
        "  more: penstock explain PS002"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"by_type": [OSError]},
        {"by_type": {int: "skip"}},
        {"by_type": {OSError: "drop"}},
        {"retries": "3"},
        {"retries": None},
        {"most": -1},
        {"most": 1.5},
        {"probation": -1},
        {"backoff": -0.1},
        {"backoff": float("nan")},
        {"backoff": "1"},
        {"most_rate": -0.1},
        {"most_rate": True},
    ],
    ids=str,
)
def test_every_field_is_checked(options):
    refusal(**options)


def test_what_is_no_policy_is_refused():
    with pytest.raises(SettingsTypeError) as caught:
        policy_of(None)
    assert str(caught.value) == (
        "[PS001] on_error option should be one of 'raise', 'skip', 'replace', 'retry' or a "
        "penstock.ErrorPolicy\n"
        "  why:  got on_error=None, of type NoneType\n"
        '  fix:  pass on_error="raise"\n'
        "  more: penstock explain PS001"
    )


def test_an_unknown_word_is_refused():
    with pytest.raises(SettingsError) as caught:
        policy_of("replce")
    assert str(caught.value) == (
        "[PS002] on_error option should be one of 'raise', 'skip', 'replace', 'retry'\n"
        "  why:  got on_error='replce'\n"
        "  fix:  the nearest allowed value is on_error='replace'\n"
        "  more: penstock explain PS002"
    )
