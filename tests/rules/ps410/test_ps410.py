"""PS410 many-small-tensors."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps410_many_small_tensors import ManySmallTensors
from tests.rules.pacing import Program

SICK = Program(tensors=112, made_s=0.01, wait_s=0.18)


def found(program):
    return list(ManySmallTensors().check(program.facts))


def test_the_hand_over_of_very_many_tensors_is_found():
    (finding,) = found(SICK)

    assert finding.message == (
        "a batch has 112 tensors: their hand-over takes 0.2 s of the 0.2 s that training waits for it"
    )
    assert finding.experiments[0].change.mends == ("pack-tensors",)
    assert finding.experiments[1].change.use_penstock


def test_a_few_tensors_are_left_alone():
    assert not found(SICK.but(tensors=6))


def test_the_making_of_batches_is_another_cause():
    assert not found(SICK.but(made_s=0.36))


def test_without_workers_nothing_is_handed_over():
    assert not found(SICK.but(workers=0))


def test_a_very_short_epoch_is_left_alone():
    assert found(SICK.but(batches=4, length=4))  # 0.7 s: so many tensors are nobody's habit
    assert not found(SICK.but(batches=2, length=2))


def test_what_is_waited_for_but_little_is_a_remark():
    (finding,) = found(SICK.but(step_s=0.4))

    assert finding.severity == "info"
    assert not found(SICK.but(step_s=4.0))
