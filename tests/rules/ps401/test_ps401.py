"""PS401 too-few-workers."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps401_too_few_workers import TooFewWorkers
from penstock._lab.plan import Change
from penstock._lab.record import Thing
from tests.rules.pacing import Program

# Samples of 6 ms that wait for storage, made one after another in the training process.
SICK = Program(workers=0, wait_s=0.1, made_s=0.1, cpu_share=0.05, step_s=0.01, used_cpus=0.4)


def found(program):
    return list(TooFewWorkers().check(program.facts))


def test_waiting_while_cpus_idle_asks_for_more_workers():
    (finding,) = found(SICK)

    assert finding.message == "training waits for data 91 % of the time while 1.6 of 2 CPUs are idle"
    assert finding.prescription.change == "num_workers=0 → num_workers=4"
    assert finding.prescription.fix.arguments == {"option": "num_workers", "old": 0, "new": 4}
    assert finding.experiments[0].change == Change(settings={"num_workers": 4})
    assert (finding.experiments[0].measure, finding.experiments[0].ratio) == ("faster", 1.5)


def test_samples_that_compute_get_no_more_workers_than_cpus():
    (finding,) = found(SICK.but(cpu_share=1.0, used_cpus=1.0))

    assert finding.prescription.change == "num_workers=0 → num_workers=2"


def test_a_program_that_hardly_waits_is_left_alone():
    assert not found(SICK.but(wait_s=0.001, step_s=0.1))


def test_a_short_epoch_is_left_alone():
    assert not found(SICK.but(batches=8, length=8))


def test_a_part_of_an_epoch_speaks_for_the_whole():
    assert found(SICK.but(batches=8, length=100, end="open"))


def test_a_worker_for_every_cpu_is_not_too_few():
    assert not found(SICK.but(workers=2))


def test_busy_cpus_have_no_room():
    assert not found(SICK.but(used_cpus=1.9))


def test_batches_cheaper_than_their_hand_over_are_left_alone():
    assert not found(SICK.but(batches=2000, length=2000, wait_s=0.001, made_s=0.001, step_s=0.0))


def test_the_ladder_knows_better():
    assert not found(SICK.but(rates={0: 100.0, 4: 110.0}))


def test_a_stream_without_workers_might_be_repeated_by_more():
    assert not found(SICK.but(is_iterable=True))


def test_a_lock_is_another_cause():
    assert not found(SICK.but(workers=1, things=(Thing("dataset.lock", "mp-lock", "Lock"),)))
