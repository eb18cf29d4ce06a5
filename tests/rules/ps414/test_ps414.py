"""PS414 thread-oversubscription."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps414_thread_oversubscription import ThreadOversubscription
from tests.rules.pacing import Program

SICK = Program(workers=4, made_s=0.2, wait_s=0.05, cpu_share=0.5, threads=10)


def found(program):
    return list(ThreadOversubscription().check(program.facts))


def test_pools_of_threads_in_each_worker_crowd_the_cpus():
    (finding,) = found(SICK)

    assert finding.message == (
        "4 workers with 8 computing threads each crowd 2 CPUs, and training waits for data 98 % of the time"
    )
    assert finding.experiments[0].change.mends == ("one-thread",)
    assert finding.prescription.fix.name == "one-thread-in-worker"


def test_the_threads_that_torch_needs_are_no_crowd():
    assert not found(SICK.but(threads=3))


def test_a_cpu_for_every_thread_is_no_crowd():
    assert not found(SICK.but(cpus=32.0))


def test_pools_that_sleep_are_left_alone():
    assert not found(SICK.but(cpu_share=0.05))


def test_a_program_that_hardly_waits_is_left_alone():
    assert not found(SICK.but(wait_s=0.001, step_s=0.1))
