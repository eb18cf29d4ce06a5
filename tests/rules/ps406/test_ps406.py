"""PS406 too-many-workers."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps406_too_many_workers import TooManyWorkers
from penstock._lab.plan import Change
from tests.rules.pacing import Program

# 16 workers on 2 CPUs: each gets an eighth of one.
SICK = Program(
    workers=16, made_s=0.8, wait_s=0.05, cpu_share=0.125, rates={0: 300.0, 1: 250.0, 2: 500.0, 16: 250.0}
)


def found(program):
    return list(TooManyWorkers().check(program.facts))


def test_fewer_workers_that_were_faster_are_prescribed():
    (finding,) = found(SICK)

    assert finding.severity == "warning"
    assert finding.message == (
        "16 workers share 2 CPUs, 2 are 2.0 times as fast; training waits for data 98 % of the time"
    )
    assert finding.prescription.change == "num_workers=16 → num_workers=2"
    assert finding.experiments[0].change == Change(settings={"num_workers": 2})


def test_a_dataset_that_does_not_load_without_workers_spoils_nothing():
    assert not found(SICK.but(rates={16: 250.0}))[0].experiments
    assert found(SICK.but(rates={2: 500.0, 16: 250.0}))[0].experiments


def test_a_quota_counts_as_well_as_the_affinity_mask():
    (finding,) = found(SICK.but(workers=2, cpus=0.5, made_s=0.1, cpu_share=0.25, rates={1: 500.0, 2: 250.0}))

    assert finding.prescription.change == "num_workers=2 → num_workers=1"


def test_without_a_gain_many_workers_are_only_told():
    (finding,) = found(SICK.but(rates={2: 260.0, 16: 250.0}))

    assert finding.severity == "info"
    assert not finding.experiments


def test_twice_as_many_as_cpus_are_usual():
    assert not found(SICK.but(workers=4, made_s=0.2, cpu_share=0.5, rates={2: 260.0, 4: 250.0}))


def test_a_cpu_for_every_worker_is_not_too_many():
    assert not found(SICK.but(cpus=16.0))


def test_workers_that_wait_may_be_many():
    assert not found(SICK.but(cpu_share=0.01))


def test_a_gain_of_less_than_a_second_is_not_worth_an_alarm():
    (finding,) = found(SICK.but(rates={2: 5000.0, 16: 2500.0}))

    assert finding.severity == "info"


def test_where_no_workers_are_better_still_that_is_the_cause():
    few = SICK.but(workers=4, made_s=0.2, cpu_share=0.5)

    assert not found(few.but(rates={0: 2000.0, 2: 500.0, 4: 250.0}))


def test_of_very_many_workers_none_may_be_better_still():
    (finding,) = found(SICK.but(rates={0: 2000.0, 2: 500.0, 16: 250.0}))

    assert finding.prescription.change == "num_workers=16 → num_workers=0"


def test_a_quota_that_the_program_does_not_see_is_told():
    (finding,) = found(SICK.but(workers=2, cpus=0.5, cores_seen=2, made_s=0.1, cpu_share=0.25, rates={}))

    assert finding.message == "2 workers share 0.5 CPUs"


def test_of_very_many_workers_half_a_second_is_enough_to_ask():
    few = SICK.but(batches=20, length=20, rates={2: 500.0, 16: 200.0})

    assert found(few)[0].experiments
    assert not found(few.but(workers=4, rates={2: 500.0, 4: 200.0}))
