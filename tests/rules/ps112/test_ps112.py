"""PS112 thread-pool-after-fork."""

from __future__ import annotations

from penstock._clinic.rules.start.ps112_thread_pool_after_fork import ThreadPoolAfterFork
from penstock._lab.record import Frame
from tests.rules.seen import facts, trial, zero
from tests.rules.stuck import LIB, frame, hung, silent, source, spawned, worker

TEXT = "\n" * 19 + "y = torch.randn(9, 9).exp().sum()\nwith self._lock:\n    x = self.jobs.get()\n"
FUTURE = (
    Frame("wait", f"{LIB}/threading.py", 320),
    Frame("result", f"{LIB}/concurrent/futures/_base.py", 451),
)


def found(observed, *rungs):
    return list(ThreadPoolAfterFork().check(facts(observed, *rungs, source=source(TEXT))))


def test_an_operation_that_waits_for_its_threads_is_named():
    (finding,) = found(hung(worker(0, frame(20)), worker(1), native_threads=4))

    assert finding.message == (
        "worker 0 waits for ever in `y = torch.randn(9, 9).exp().sum()`: the threads of its pool did not"
        " survive"
        " the fork"
    )
    assert finding.experiments[0].change.mends == ("no-raise-threads",)
    assert ("threads of the program at the fork", "4") in [
        (each.fact, each.value) for each in finding.evidence
    ]


def test_an_executor_made_before_the_fork_is_to_be_made_in_the_worker():
    (finding,) = found(hung(worker(0, *FUTURE, frame(20))))

    assert finding.prescription.fix.name == "reopen-in-worker"
    assert finding.experiments[0].change.mends == ("restart-threads",)


def test_a_queue_that_a_lost_thread_should_fill_counts():
    get = (Frame("wait", f"{LIB}/threading.py", 320), Frame("get", f"{LIB}/queue.py", 171))

    (finding,) = found(hung(worker(0, *get, frame(22))))

    assert finding.message == (
        "worker 0 waits for ever in `x = self.jobs.get()` for a thread that did not survive the fork"
    )


def test_what_tokenizers_say_is_an_info():
    said = "tokenizers: The current process just got forked, after parallelism has already been used."

    (finding,) = found(trial(stderr=said))

    assert finding.severity == "info"


def test_a_lock_is_something_else():
    assert found(hung(worker(0, frame(21)), threads=("t",))) == []


def test_spawned_workers_and_programs_that_hang_without_workers_are_left_alone():
    assert found(hung(worker(0, frame(20)), seen=spawned())) == []
    assert found(hung(worker(0, frame(20))), silent(zero())) == []
    assert found(trial()) == []
