"""PS403 storage-bound."""

from __future__ import annotations

from penstock._clinic.rules.speed.ps403_storage_bound import StorageBound
from penstock._lab.record import Thing
from tests.rules.pacing import Program

SICK = Program(workers=4, made_s=0.2, wait_s=0.05, cpu_share=0.05, read_nbytes=50_000)


def found(program):
    return list(StorageBound().check(program.facts))


def test_workers_that_wait_for_reads_are_given_samples_from_memory():
    (finding,) = found(SICK)

    assert finding.message == (
        "training waits for data 98 % of the time, and 4 workers wait for reads 95 % of theirs"
    )
    assert finding.experiments[0].change.mends == ("cached-samples",)
    assert finding.experiments[0].measure == "faster"


def test_the_dataset_itself_waits_where_there_are_no_workers():
    (finding,) = found(SICK.but(workers=0, wait_s=0.2))

    assert "the dataset waits for reads" in finding.message


def test_workers_that_compute_do_not_wait():
    assert not found(SICK.but(cpu_share=0.5))


def test_workers_that_read_nothing_wait_for_something_else():
    assert not found(SICK.but(read_nbytes=0))


def test_a_lock_is_another_cause():
    assert not found(SICK.but(things=(Thing("dataset.lock", "mp-lock", "Lock"),)))


def test_two_seconds_in_an_epoch_are_the_price_of_reading():
    assert not found(SICK.but(batches=30, length=30))
