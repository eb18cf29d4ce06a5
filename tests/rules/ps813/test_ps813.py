"""PS813 blocking-io."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.failures.ps813_blocking_io import BlockingIo
from penstock._lab.record import Frame
from tests.rules.seen import facts, loader, trial, zero
from tests.rules.stuck import FETCH, LIB, consumer, frame, hung, silent, source, thing, worker

TEXT = "\n" * 19 + "answer = conn.recv(10)\nwith self._lock:\n    pass\n"


def found(observed, *rungs):
    return list(BlockingIo().check(facts(observed, *rungs, source=source(TEXT))))


@pytest.mark.parametrize(
    ("wchan", "what"),
    [
        ("wait_woken", "an answer from a socket"),
        ("anon_pipe_read", "data from a pipe"),
        ("wait_for_partner", "data from a pipe"),
        ("locks_lock_inode_wait", "a file lock that somebody else holds"),
        ("do_wait", "a child process that does not end"),
    ],
)
def test_what_is_waited_for_is_named(wchan, what):
    (finding,) = found(hung(worker(0), worker(1, frame(20), wchan=wchan)))

    assert finding.message == f"worker 1 waits for ever for {what} at train.py:20, at sample 5"
    assert finding.confidence == "observed"
    assert finding.stopped_at_s == 3.0


def test_a_loop_that_asks_again_and_again_is_suspected():
    (finding,) = found(hung(worker(1, frame(20), wchan="hrtimer_nanosleep")))

    assert finding.confidence == "suspected"


def test_a_program_without_workers_is_examined_too():
    stuck = consumer(Frame("recv", f"{LIB}/socket.py", 9), frame(20), *FETCH, wchan="wait_woken")

    (finding,) = found(trial(loader(num_workers=0), outcome="hang", seconds=9.0, looks=(stuck,)))

    assert (
        finding.message
        == "the program waits for ever for an answer from a socket at train.py:20, at a sample"
    )


def test_a_lock_that_hangs_without_workers_too_is_told_here():
    (finding,) = found(hung(worker(0, frame(21))), silent(zero()))

    assert finding.message == (
        "worker 0 waits for ever for `self._lock` at train.py:21, at sample 5, with num_workers=0 too"
    )


@pytest.mark.parametrize(
    "observed",
    [
        trial(),
        hung(worker(0), worker(1)),
        hung(worker(0, frame(20))),
        hung(worker(0, frame(20), wchan="wait_woken", read_moved=True)),
        hung(worker(0, frame(20), wchan="hrtimer_nanosleep", cpu_moved=True)),
    ],
)
def test_what_moves_or_waits_for_something_else_is_left_alone(observed):
    assert found(observed) == []


def test_a_connection_that_workers_share_is_another_cause():
    seen = loader(things=(thing("dataset.sock", "socket"),))

    assert found(hung(worker(0, frame(20), wchan="wait_woken"), seen=seen), zero()) == []


def test_a_lock_that_was_held_at_the_fork_and_a_pipe_that_workers_share_are_other_causes():
    held = loader(things=(thing("dataset._lock", "lock", detail="held"),))
    piped = loader(things=(thing("dataset.proc.stdout", mode="rb", detail="5"),))

    assert found(hung(worker(0, frame(21)), seen=held), silent(zero())) == []
    assert found(hung(worker(0, frame(20), wchan="anon_pipe_read"), seen=piped), zero()) == []
