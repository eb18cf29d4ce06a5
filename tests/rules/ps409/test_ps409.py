"""PS409 lock-serialises-workers."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps409_lock_serialises_workers import LockSerialisesWorkers
from penstock._lab.record import Thing
from tests.rules.pacing import Program

LOCK = Thing("dataset.lock", "mp-lock", "multiprocessing.synchronize.Lock")
SICK = Program(workers=4, made_s=0.2, wait_s=0.05, cpu_share=0.02, things=(LOCK,))


def found(program):
    return list(LockSerialisesWorkers().check(program.facts))


def test_workers_that_wait_for_one_another_at_a_lock_are_found():
    (finding,) = found(SICK)

    assert finding.message == (
        "4 workers wait for one another at dataset.lock, and training waits for data 98 % of the time"
    )
    assert finding.experiments[0].change.mends == ("no-locks",)
    assert finding.prescription.fix.name == "remove-lock"


def test_a_lock_that_hangs_nowhere_shows_in_where_workers_wait():
    (finding,) = found(SICK.but(things=(), worker_waits=("futex_do_wait", "futex_do_wait", "", "")))

    assert finding.message.startswith("4 workers wait for one another at a lock")
    assert finding.prescription.fix is None


def test_a_lock_at_which_nobody_is_found_waiting_holds_nobody_up():
    assert not found(SICK.but(worker_waits=("hrtimer_nanosleep",) * 4))


def test_without_a_lock_nothing_serialises():
    assert not found(SICK.but(things=()))


def test_workers_that_scale_are_not_held_up():
    assert not found(SICK.but(rates={1: 100.0, 4: 380.0}))


def test_workers_that_do_not_scale_are_held_up():
    assert found(SICK.but(rates={1: 100.0, 4: 110.0}))


def test_workers_that_compute_all_the_time_are_not_held_up():
    assert not found(SICK.but(workers=2, made_s=0.1, cpu_share=0.95))


def test_one_worker_has_nobody_to_wait_for():
    assert not found(SICK.but(workers=1, made_s=0.05))


def test_a_lock_that_costs_little_is_left_alone():
    assert not found(SICK.but(wait_s=0.001))
