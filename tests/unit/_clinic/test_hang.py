"""What a stuck program waits for."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._clinic import hang
from penstock._lab.record import Failure, Frame, ThreadLook
from tests.rules.seen import KEY, facts, loader, trial, zero
from tests.rules.stuck import FETCH, FUTEX, IDLE, LIB, consumer, frame, hung, source, worker

COLLECTIVE = Frame("all_reduce", f"{LIB}/site-packages/torch/distributed/distributed_c10d.py", 9)


@pytest.mark.parametrize(
    ("looks", "signature"),
    [
        ((worker(0), worker(1)), "lost-batch"),
        ((worker(0), worker(1, frame(20))), "lock"),
        ((worker(0), worker(1, frame(20), wchan="wait_woken")), "read"),
        ((worker(0), worker(1, frame(20), wchan="anon_pipe_read")), "read"),
        ((worker(0), worker(1, frame(20), cpu_moved=True)), "slow"),
        ((worker(0), worker(1, frame(20), wchan="wait_woken", read_moved=True)), "slow"),
    ],
)
def test_signatures_with_workers(looks, signature):
    assert hang.judge(hung(*looks)).signature == signature


def test_a_rank_that_waits_for_another_is_told_apart():
    observed = hung(worker(0))
    stuck = dataclasses.replace(observed, looks=(consumer(COLLECTIVE, frame(40)), worker(0)))

    assert hang.judge(stuck).signature == "other-rank"


def test_a_program_that_is_stuck_in_its_own_loop_is_elsewhere():
    stuck = dataclasses.replace(hung(worker(0)), looks=(consumer(frame(40)), worker(0)))

    assert hang.judge(stuck).signature == "elsewhere"


def test_without_workers_the_consumer_is_judged():
    alone = trial(
        loader(num_workers=0), outcome="hang", looks=(consumer(frame(20), *FETCH, wchan="wait_woken"),)
    )

    found = hang.judge(alone)

    assert (found.signature, found.first.worker, found.first.named) == ("read", None, "the program")


def test_who_does_not_hang_is_not_judged():
    assert hang.judge(trial(looks=(worker(0, frame(20)),))) is None
    assert hang.judge(trial(outcome="hang")) is None


def test_the_guilty_one_tells_worker_sample_and_line():
    first = hang.judge(
        hung(worker(0), worker(1, Frame("f", f"{LIB}/json/decoder.py", 3), frame(20), index=8))
    ).first

    assert (first.worker, first.index, first.site.line, first.inner.function) == (1, 8, 20, "f")


@pytest.mark.parametrize(
    ("thread", "wait"),
    [
        (ThreadLook(1, **FUTEX), "futex"),
        (ThreadLook(1, wchan="0", syscall="202 0x1"), "futex"),
        (ThreadLook(1, wchan="0", syscall="45 0x1"), "socket"),
        (ThreadLook(1, wchan="sk_wait_data"), "socket"),
        (ThreadLook(1, wchan="hrtimer_nanosleep"), "sleep"),
        (ThreadLook(1, wchan="0", syscall="0 0x3"), "pipe"),
        (ThreadLook(1, syscall="running", state="R"), "running"),
        (ThreadLook(1, frames=(Frame("recv_into", f"{LIB}/socket.py", 3),)), "socket"),
        (ThreadLook(1), "unknown"),
    ],
)
def test_kinds_of_waits(thread, wait):
    assert hang.wait_of(thread) == wait


def test_a_lock_is_dead_when_only_housekeeping_is_left():
    assert hang.is_dead(worker(0, frame(20)))
    assert not hang.is_dead(worker(0, frame(20), others=(ThreadLook(77),)))
    assert not hang.is_dead(worker(0, frame(20), switches_moved=True, **FUTEX))
    own = ThreadLook(77, frames=(frame(3, "refresh"),))
    assert not hang.is_dead(worker(0, frame(20), others=(own,)))


def test_an_idle_worker_waits_for_work_and_for_nothing_else():
    assert hang.is_idle(worker(0))
    inside = worker(0, Frame("get", f"{LIB}/multiprocessing/queues.py", 113), frame(20))
    assert not hang.is_idle(inside)
    assert IDLE[-1].function == "_worker_loop"


LINES = (
    "\n" * 19
    + "with self._lock:\n    y = x.exp()\nv = LOCK.acquire()\nwith torch.no_grad():\n    pass\n"
    + "with self.locks[i % 4]: pass\n"
)


@pytest.mark.parametrize(
    ("line", "name"),
    [(20, "self._lock"), (21, None), (22, "LOCK"), (23, None), (25, "self.locks[i % 4]"), (99, None)],
)
def test_the_lock_in_a_line(line, name):
    stuck = hang.judge(hung(worker(0, frame(line)))).first

    assert hang.lock_name(stuck, source(LINES)) == name


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((frame(20),), "lock"),
        ((frame(21),), "pool"),
        ((Frame("acquire", f"{LIB}/logging/__init__.py", 9), frame(21)), "lock"),
        ((Frame("_find_and_load", "<frozen importlib._bootstrap>", 9), frame(21)), "lock"),
        ((Frame("resize", f"{LIB}/site-packages/cv2/__init__.py", 9), frame(21)), "pool"),
        ((Frame("wait", f"{LIB}/threading.py", 9), Frame("get", f"{LIB}/queue.py", 9), frame(21)), "thread"),
        (
            (
                Frame("wait", f"{LIB}/threading.py", 9),
                Frame("get", f"{LIB}/multiprocessing/pool.py", 9),
                frame(21),
            ),
            "pool",
        ),
        ((Frame("sync", f"{LIB}/site-packages/fsspec/asyn.py", 9), frame(21)), "client"),
        ((Frame("wait", f"{LIB}/threading.py", 9), frame(21, "S3Client.get")), "client"),
    ],
)
def test_what_a_futex_stands_for(frames, kind):
    stuck = hang.judge(hung(worker(0, *frames))).first

    assert hang.dead_thing(stuck, source(LINES), has_threads=True, has_locks=True) == kind


def test_a_future_of_an_event_loop_made_a_line_above_is_a_client():
    text = "\n" * 18 + "future = asyncio.run_coroutine_threadsafe(get(k), io)\nreturn_ = future.result()\n"
    result = Frame("result", f"{LIB}/concurrent/futures/_base.py", 9)
    stuck = hang.judge(hung(worker(0, result, frame(20, "BlobStore.get")))).first

    assert hang.dead_thing(stuck, source(text), has_threads=True, has_locks=False) == "client"
    assert hang.dead_thing(stuck, source(LINES), has_threads=True, has_locks=False) == "pool"


def test_without_the_source_what_there_was_at_the_fork_decides():
    stuck = hang.judge(hung(worker(0, frame(20)))).first

    assert hang.dead_thing(stuck, None, has_threads=True, has_locks=True) == "lock"
    assert hang.dead_thing(stuck, None, has_threads=False, has_locks=False) == "pool"


def test_workers_whose_stacks_cannot_be_read_are_idle_when_they_poll():
    blind = [
        dataclasses.replace(
            look, threads=tuple(dataclasses.replace(each, frames=()) for each in look.threads)
        )
        for look in (consumer(), worker(0), worker(1))
    ]

    assert hang.judge(dataclasses.replace(hung(), looks=tuple(blind))).signature == "lost-batch"


def test_threads_at_the_fork_are_those_of_the_pass_or_of_the_stacks():
    assert hang.program_threads(hang.judge(hung(worker(0), threads=("flusher",)))) == ("flusher",)
    main = consumer()
    other = ThreadLook(50, name="refresher", frames=(frame(3, "refresh"),))
    observed = dataclasses.replace(
        hung(worker(0)), looks=(dataclasses.replace(main, threads=(*main.threads, other)), worker(0))
    )
    assert hang.program_threads(hang.judge(observed)) == ("refresher",)


def test_a_hang_counts_on_a_rung_where_the_program_had_luck_or_gave_up():
    stuck = hung(worker(0, frame(20)))
    plan = dataclasses.replace(
        zero().plan, change=dataclasses.replace(zero().plan.change, settings={"num_workers": 2})
    )
    climbed = dataclasses.replace(stuck, plan=plan)
    gave_up = trial(
        outcome="error", failures=(Failure("RuntimeError", "DataLoader timed out after 9 seconds"),)
    )

    assert [each.loader for each in hang.hangs(facts(trial(), climbed))] == [KEY]
    assert [each.loader for each in hang.hangs(facts(gave_up, climbed))] == [KEY]
    assert list(hang.hangs(facts(trial(), dataclasses.replace(stuck, plan=zero().plan)))) == []
    assert list(hang.hangs(facts(trial(outcome="error"), climbed))) == []
