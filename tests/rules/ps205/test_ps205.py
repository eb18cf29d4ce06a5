"""PS205 shm-leaked."""

from __future__ import annotations

import signal

from penstock._clinic.rules.limits.ps205_shm_leaked import ShmLeaked
from penstock._lab.record import Death
from tests.rules.seen import GB, MB, facts, failure, host, loader, trial, vitals


def found(observed):
    return list(ShmLeaked().check(facts(observed)))


def test_names_that_a_program_leaves_are_found():
    observed = trial(loader(strategy="file_system"), left_shm=("torch_77_1_0", "torch_77_2_0"))

    (finding,) = found(observed)

    assert finding.message == (
        "the program leaves shared memory behind: 2 files (torch_77_1_0, torch_77_2_0)"
    )
    assert finding.prescription.fix.name == "sharing-strategy"


def test_what_pythons_own_tracker_says_is_believed():
    observed = trial(
        stderr="resource_tracker: There appear to be 40 leaked shared_memory objects to clean up\n"
    )

    assert found(observed)[0].evidence[0].value == "40 shared_memory objects leaked"


def test_what_dead_programs_left_counts_when_it_crowds_the_mount():
    crowded = host(shm_size=GB, shm_stale=("torch_5_1_0",), shm_stale_nbytes=900 * MB)

    (finding,) = found(trial(host=crowded))

    assert finding.message == "1 file of dead processes take 900 MB of the 1 GB of /dev/shm"


def test_a_little_that_dead_programs_left_is_no_matter():
    assert not found(trial(host=host(shm_stale=("torch_5_1_0",), shm_stale_nbytes=MB)))


def test_a_program_that_the_exam_ended_could_not_clean_up():
    assert not found(trial(ended_by="enough", left_shm=("torch_77_1_0",)))


def test_what_a_worker_was_about_to_hand_over_when_it_was_ended_is_no_leak():
    assert not found(trial(outcome="error", left_shm=("torch_77_1_0", "torch_78_1_0")))


def test_use_that_rises_may_be_somebody_elses():
    assert not found(trial(vitals=vitals(shm_used=lambda batch: 4 * MB * batch)))


def test_names_of_files_that_could_not_be_filled_are_no_leak():
    observed = trial(
        outcome="error",
        left_shm=("torch_77_1_0",),
        failures=(
            failure("unable to allocate shared memory(shm) for file </torch_77_1_0>: No space left (28)"),
        ),
    )

    assert not found(observed)


def test_what_a_worker_leaves_that_was_killed_by_a_full_mount_is_no_leak():
    death = Death(pid=12, worker=1, status=-signal.SIGBUS)
    observed = trial(
        outcome="crash",
        deaths=(death,),
        stderr="There appear to be 1 leaked shared_memory objects to clean up",
    )

    assert not found(observed)


def test_what_dead_programs_left_is_the_root_when_there_is_no_room():
    crowded = host(shm_size=64 * MB, shm_stale=("torch_5_1_0",), shm_stale_nbytes=50 * MB)
    full = failure("No space left on device (28)", phase="feeder", worker=0)

    (finding,) = found(trial(outcome="hang", failures=(full,), host=crowded))

    assert finding.severity == "error"
    assert finding.experiments[0].change.shm_bytes == 64 * MB


def test_segments_of_the_programs_own_that_have_filled_the_mount_are_the_cause():
    killed = (Death(pid=9, worker=0, status=-signal.SIGBUS),)
    names = tuple(f"psm_{number:04}" for number in range(40))

    (finding,) = found(trial(outcome="crash", deaths=killed, left_shm=names))

    assert finding.severity == "error"
    assert not found(trial(outcome="crash", deaths=killed, left_shm=names[:1]))


def test_what_crew_after_crew_of_workers_leaves_adds_up_while_the_program_runs():
    names = tuple(f"tile_{number}" for number in range(12))

    def left(by):
        return trial(loader(), ended_by="enough", orphaned_shm=names, orphaned_by=by)

    (finding,) = found(left(12))

    assert finding.severity == "warning"
    assert "12 files of 12 processes that are no more" in finding.message
    assert not found(left(4))


def test_names_of_dead_processes_that_took_much_of_the_mount_before_it_was_full_are_the_cause():
    full = (failure("unable to allocate shared memory(shm) for file </torch_9_1_1>"),)

    def left(nbytes):
        crowded = host(shm_size=64 * MB)
        return trial(loader(), outcome="error", failures=full, host=crowded, orphaned_nbytes=nbytes)

    (finding,) = found(left(30 * MB))

    assert finding.severity == "error"
    assert "30 MB of the 64 MB were taken by processes that are no more" in finding.message
    assert not found(left(1 * MB))
