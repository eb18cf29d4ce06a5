"""Samples of workers against those without."""

from __future__ import annotations

from penstock._clinic.agreement import agreement
from tests.rules.seen import KEY, facts, samples, trial, zero


def test_samples_that_differ_are_named():
    found = agreement(facts(trial(samples=samples("axcx", worker=1)), zero(samples=samples("abcd"))), KEY)

    assert (found.checked, found.wrong, found.share) == (4, (1, 3), 0.5)


def test_an_index_that_is_random_without_workers_tells_nothing():
    twice = (*samples("ab"), *samples("xb", iterator=1))

    found = agreement(facts(trial(samples=samples("zb", worker=0)), zero(samples=twice)), KEY)

    assert (found.checked, found.wrong) == (1, ())


def test_without_a_reference_nothing_is_compared():
    assert agreement(facts(trial(samples=samples("ab", worker=0))), KEY).checked == 0


def test_samples_that_all_differ_are_chance_where_each_was_loaded_once():
    once = zero(samples=samples(range(40)))

    found = agreement(facts(trial(samples=samples(range(40, 80), worker=0)), once), KEY)

    assert found.share == 1.0
    assert not found.is_wrong


def test_samples_that_all_differ_are_wrong_where_they_were_the_same_each_time():
    twice = zero(samples=(*samples(range(40)), *samples(range(40), iterator=1)))

    found = agreement(facts(trial(samples=samples(range(40, 80), worker=0)), twice), KEY)

    assert found.is_wrong


def test_later_passes_may_be_of_what_the_program_has_changed():
    changed = (*samples("ab", worker=0), *samples("xy", worker=0, iterator=1))

    found = agreement(facts(trial(samples=changed), zero(samples=samples("ab"))), KEY)

    assert (found.checked, found.wrong) == (2, ())
