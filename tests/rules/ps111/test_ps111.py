"""PS111 lock-held-at-fork."""

from __future__ import annotations

import pytest

from penstock._clinic.rules.start.ps111_lock_held_at_fork import LockHeldAtFork
from penstock._lab.record import Frame
from tests.rules.seen import facts, zero
from tests.rules.stuck import FILE, LIB, Site, frame, hung, loader, silent, source, spawned, thing, worker

TEXT = "\n" * 19 + "with self._lock:\n    pass\nself.guard.acquire()\ny = x.exp()\n"


def found(observed, *rungs, text=TEXT):
    return list(LockHeldAtFork().check(facts(observed, *rungs, source=source(text))))


def test_lock_and_thread_are_named():
    observed = hung(worker(0), worker(1, frame(20)), threads=("cache-refresher",))

    (finding,) = found(observed)

    assert finding.message == (
        "worker 1 waits for ever for `self._lock`, which thread 'cache-refresher' held when the worker was"
        " forked"
    )
    assert finding.confidence == "proved"
    assert finding.where == Site(FILE, 20, "__getitem__")
    assert finding.stopped_at_s == 3.0
    assert [each.change.mends for each in finding.experiments] == [("no-locks",), ()]


def test_a_lock_that_cannot_be_shipped_is_only_left_out():
    seen = loader(things=(thing("dataset.guard", "lock", pickles=False),))

    (finding,) = found(hung(worker(0, frame(22)), seen=seen, threads=("a", "b")))

    assert finding.message == (
        "worker 0 waits for ever for `self.guard`, which one of 2 other threads (a, b) held when the worker"
        " was"
        " forked"
    )
    assert [each.change.mends for each in finding.experiments] == [("no-locks",)]


def test_a_native_thread_leaves_it_unproven():
    import dataclasses

    from penstock._lab.record import ThreadLook

    look = worker(0, frame(20))
    look = dataclasses.replace(look, threads=(*look.threads, ThreadLook(tid=77)))

    (finding,) = found(hung(look, threads=("t",)))

    assert finding.confidence == "observed"


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ((worker(0, frame(23)),), "an operation of torch is a pool's affair"),
        ((worker(0, frame(20), cpu_moved=True),), "it moves"),
        ((worker(0), worker(1)), "a batch was lost"),
        ((worker(0, frame(20), wchan="wait_woken"),), "it reads"),
        ((worker(0, Frame("result", f"{LIB}/concurrent/futures/_base.py", 451), frame(20)),), "a future"),
    ],
)
def test_other_waits_are_no_locks(looks, why):
    assert found(hung(*looks)) == []


def test_a_program_that_hangs_without_workers_too_waits_for_itself():
    assert found(hung(worker(0, frame(20))), silent(zero())) == []


def test_spawned_workers_inherit_no_lock():
    assert found(hung(worker(0, frame(20)), seen=spawned())) == []


def test_a_lock_that_the_main_thread_itself_holds_is_told_here():
    held = loader(things=(thing("dataset._lock", "lock", detail="held"),))

    (finding,) = found(hung(worker(0, frame(20)), seen=held), silent(zero()))

    assert finding.message == (
        "worker 0 waits for ever for `self._lock`, which was already held when the worker was forked"
    )
