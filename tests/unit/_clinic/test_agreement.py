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
