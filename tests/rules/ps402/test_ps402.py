"""PS402 transform-bound."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps402_transform_bound import TransformBound
from tests.rules.pacing import Program

SICK = Program(workers=2, made_s=0.1, wait_s=0.05, used_cpus=1.9)


def found(program):
    return list(TransformBound().check(program.facts))


def test_workers_that_compute_all_the_time_are_told_as_an_info():
    (finding,) = found(SICK)

    assert finding.severity == "info"
    assert finding.message == (
        "training waits for data 98 % of the time, and 2 workers compute all the while, mostly in the dataset"
    )
    assert not finding.experiments


def test_collate_is_named_where_it_takes_the_time():
    (finding,) = found(SICK.but(collate_s=0.08))

    assert finding.message.endswith("mostly in collate")


def test_more_workers_than_cpus_share_them():
    assert found(SICK.but(workers=4, made_s=0.2, cpu_share=0.5))


def test_workers_that_wait_do_not_compute():
    assert not found(SICK.but(cpu_share=0.2))


def test_fewer_workers_than_cpus_are_another_cause():
    assert not found(SICK.but(workers=1))


def test_hand_over_is_another_cause():
    assert not found(SICK.but(made_s=0.01))


def test_idle_cpus_are_another_cause():
    assert not found(SICK.but(used_cpus=0.4))


def test_workers_that_others_keep_from_the_cpus_compute_all_the_same():
    assert found(SICK.but(used_cpus=0.4, worker_waits=("",) * 4))


def test_short_epochs_that_nobody_would_be_alarmed_about_are_told_all_the_same():
    short = SICK.but(passes=4, batches=30, length=30, wait_s=0.015, made_s=0.03)
    assert found(short)
    assert not found(short.but(passes=2, batches=15, length=15))


def test_workers_of_another_loader_that_wait_for_their_turn_do_not_speak_for_this_one():
    looks = ("", "", "do_poll", "do_poll")
    assert found(SICK.but(wait_s=0.05, made_s=0.09, worker_waits=looks))
    assert not found(SICK.but(wait_s=0.05, made_s=0.04, worker_waits=looks))
