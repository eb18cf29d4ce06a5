"""PS405 not-fed-fast-enough."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps405_not_fed_fast_enough import NotFedFastEnough
from tests.rules.pacing import Program

SICK = Program(nbytes=38 << 20, made_s=0.02, wait_s=0.05)


def found(program):
    return list(NotFedFastEnough().check(program.facts))


def test_the_hand_over_of_large_batches_is_told_as_an_info():
    (finding,) = found(SICK)

    assert finding.severity == "info"
    assert finding.message == (
        "training waits for data 98 % of the time, 82 % of that for the hand-over of batches of 38 MB"
    )


def test_the_making_of_batches_is_another_cause():
    assert not found(SICK.but(made_s=0.1))


def test_small_batches_wait_for_something_else():
    assert not found(SICK.but(nbytes=10_000))


def test_where_no_workers_are_better_that_is_the_cause():
    assert not found(SICK.but(rates={0: 1000.0, 2: 300.0}))


def test_without_workers_nothing_is_handed_over():
    assert not found(SICK.but(workers=0))
