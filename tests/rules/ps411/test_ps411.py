"""PS411 workers-not-worth-it."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps411_workers_not_worth_it import WorkersNotWorthIt
from tests.rules.pacing import Program

# 20,000 rows in memory, ten at a time.
SICK = Program(
    batches=2000,
    length=2000,
    batch_size=10,
    made_s=0.0001,
    wait_s=0.002,
    step_s=0.0001,
    rates={0: 95_000.0, 2: 4_900.0},
)


def found(program):
    return list(WorkersNotWorthIt().check(program.facts))


def test_workers_that_cost_more_than_they_bring_are_found():
    (finding,) = found(SICK)

    assert finding.message == (
        "with 2 workers an epoch takes 3.9 s longer than without: "
        "a batch takes 0.1 ms to make and 2 ms to hand over"
    )
    assert finding.prescription.change == "num_workers=2 → num_workers=0"
    assert finding.experiments[0].change.settings == {"num_workers": 0}


def test_a_tutorial_that_ends_in_a_blink_is_left_alone():
    assert not found(SICK.but(batches=30, length=30, start_s=0.15))


def test_a_slow_start_of_few_batches_is_another_cause():
    assert not found(SICK.but(batches=30, length=30, start_s=8.0, rates={0: 95_000.0, 2: 37.0}))


def test_a_part_of_a_long_epoch_speaks_for_the_whole():
    assert found(SICK.but(batches=30, end="open"))


def test_workers_that_bring_something_are_left_alone():
    assert not found(SICK.but(rates={0: 4_000.0, 2: 4_900.0}))


def test_a_long_training_step_hides_the_hand_over():
    assert not found(SICK.but(step_s=0.01))


def test_more_workers_than_cpus_are_another_cause():
    assert not found(SICK.but(workers=4, rates={0: 5_000.0, 2: 4_900.0, 4: 1_000.0}))


def test_of_a_few_more_workers_than_cpus_none_may_be_best():
    assert found(SICK.but(workers=4, rates={0: 95_000.0, 2: 4_900.0, 4: 1_000.0}))


def test_very_many_workers_are_another_cause_whatever_the_data():
    assert not found(SICK.but(workers=16, rates={0: 95_000.0, 2: 4_900.0, 16: 1_000.0}))
