"""Whether memory or shared memory ran out."""

from __future__ import annotations

import signal

from penstock._clinic.shortage import is_out_of_memory, is_out_of_shm, raised
from penstock._lab.record import Death, Failure, HostSeen, Trial, Vitals

KILLED = Death(pid=7, worker=0, status=-signal.SIGKILL)
LIMITED = HostSeen(memory_limit=1_000, max_map_count=100)


def test_a_trial_that_ended_for_want_of_memory():
    assert is_out_of_memory(Trial(outcome="oom"))
    assert is_out_of_memory(Trial(ended_by="memory"))
    assert not is_out_of_memory(Trial())


def test_a_killed_worker_counts_when_memory_was_short():
    assert is_out_of_memory(Trial(deaths=(KILLED,), host=HostSeen(oom_kills=1)))
    assert is_out_of_memory(Trial(deaths=(KILLED,), host=LIMITED, vitals=(Vitals(1.0, tree_pss=900),)))
    assert not is_out_of_memory(Trial(deaths=(KILLED,), host=LIMITED, vitals=(Vitals(1.0, tree_pss=90),)))


def test_what_a_worker_raises_counts():
    failure = Failure("MemoryError", phase="sample", worker=1)

    assert raised(Trial(failures=(failure,))) is failure
    assert raised(Trial(failures=(Failure("MemoryError", phase="sample", worker=-1),))) is None
    assert raised(Trial(failures=(Failure("MemoryError", phase="program"),))) is None


def test_more_at_once_than_there_is_at_all_is_no_want_of_memory():
    host = HostSeen(memory_limit=20 << 30)

    def asked(size):
        failure = Failure("MemoryError", f"Unable to allocate {size} for an array", phase="sample", worker=1)
        return raised(Trial(failures=(failure,), host=host))

    assert asked("23.7 GiB") is None
    assert asked("1.5 GiB") is not None
    assert asked("900 bytes") is not None


def test_maps_that_ran_out_say_the_same():
    failure = Failure("RuntimeError", "unable to mmap: Cannot allocate memory (12)", phase="feeder", worker=1)

    assert raised(Trial(failures=(failure,), host=LIMITED, vitals=(Vitals(1.0, main_maps=90),))) is None
    assert raised(Trial(failures=(failure,), host=LIMITED, vitals=(Vitals(1.0, main_maps=9),))) is failure


def test_shared_memory():
    said = Failure("RuntimeError", "No space left on device (28)", phase="feeder", worker=0)
    bus = Death(pid=7, worker=0, status=-signal.SIGBUS)

    assert is_out_of_shm(Trial(outcome="hang", failures=(said,)))
    assert is_out_of_shm(Trial(outcome="crash", deaths=(bus,)))
    assert not is_out_of_shm(Trial(outcome="crash", deaths=(KILLED,)))
    assert not is_out_of_shm(Trial())
