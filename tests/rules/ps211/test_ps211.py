"""PS211 worker-out-of-memory."""

from __future__ import annotations

import dataclasses
import signal

from penstock._clinic.rules.limits.ps211_worker_out_of_memory import WorkerOutOfMemory
from penstock._lab.record import Death, ProcessLook
from tests.rules.seen import GB, KEY, facts, failure, host, loader, passed, trial, vitals, zero

KILLED = Death(pid=12, worker=1, loader=KEY, status=-signal.SIGKILL, at_s=5.0)
SHORT = host(oom_kills=1, memory_limit=GB)


def found(observed):
    return list(WorkerOutOfMemory().check(facts(observed)))


def test_a_worker_that_the_kernel_killed_is_found():
    observed = trial(
        loader(num_workers=4), outcome="oom", deaths=(KILLED,), host=host(oom_kills=1, memory_limit=GB)
    )

    (finding,) = found(observed)

    assert finding.message == (
        "worker 1 was killed by SIGKILL for want of memory: `train_loader` with 4 workers needs more than "
        "the 1 GB of memory there are"
    )
    assert [each.change.settings for each in finding.experiments] == [{"num_workers": 1}, {"num_workers": 0}]
    assert finding.stopped_at_s == 5.0


def test_a_program_that_is_killed_in_place_of_its_workers_is_found():
    killed = trial(
        outcome="oom", status=-signal.SIGKILL, iterators=(passed(workers=(11, 12), end="open"),), host=SHORT
    )

    (finding,) = found(killed)

    assert finding.message == (
        "the program was killed by SIGKILL for want of memory while its workers ran: `train_loader` with 2 "
        "workers needs more than the 1 GB of memory there are"
    )
    assert not found(dataclasses.replace(killed, iterators=()))


def test_a_worker_that_raised_for_want_of_memory_is_found():
    said = failure("Unable to allocate 4 GiB", kind="MemoryError", phase="sample", worker=0)

    (finding,) = found(trial(outcome="error", failures=(said,)))

    assert finding.message.startswith("worker 0 raised MemoryError: ")


WEIGHED = (
    ProcessLook(10, role="main", uss=GB // 8),
    ProcessLook(12, role="worker", worker=1, loader=KEY, index=61, uss=GB // 2),
)


def test_the_worker_that_held_the_most_when_the_exam_had_to_end_is_found():
    observed = trial(
        loader(num_workers=2), outcome="oom", ended_by="memory", looks=WEIGHED, host=host(memory_limit=GB)
    )

    (finding,) = found(observed)

    assert finding.message.startswith("worker 1 held 512 MB at sample 61 when memory ran out: ")
    assert finding.experiments[-1].change.mends == ("skip-index:61",)


def test_memory_that_runs_out_without_workers_too_is_laid_to_the_batch_in_hand():
    killed = dataclasses.replace(KILLED, index=[4, 9])
    observed = trial(loader(num_workers=4), outcome="oom", deaths=(killed,), host=host(oom_kills=1))
    seen = facts(observed, zero(outcome="oom"))

    (finding,) = WorkerOutOfMemory().check(seen)

    (experiment,) = finding.experiments
    assert experiment.title == "the loader without the batch [4, 9]"
    assert experiment.change.mends == ("skip-index:4,9",)
    assert finding.prescription.change == "give the program more memory, or make its batches smaller"


def test_a_program_that_took_the_memory_itself_is_no_workers_fault():
    looks = (ProcessLook(10, role="main", uss=GB), WEIGHED[1])

    assert not found(trial(loader(num_workers=2), outcome="oom", ended_by="memory", looks=looks))


def test_a_worker_that_somebody_killed_is_left_alone():
    assert not found(trial(outcome="crash", deaths=(KILLED,), vitals=vitals(tree_pss=GB)))


def test_memory_that_ran_out_without_workers_is_not_theirs():
    said = failure("", kind="MemoryError", phase="sample", worker=-1)

    assert not found(trial(loader(num_workers=0), outcome="error", failures=(said,)))


def test_maps_that_ran_out_are_another_matter():
    said = failure("unable to mmap: Cannot allocate memory (12)", phase="feeder", worker=0)

    assert not found(trial(outcome="error", failures=(said,), vitals=vitals(main_maps=65_000)))
