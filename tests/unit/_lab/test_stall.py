"""Slow or stuck: from beats and from stacks."""

from __future__ import annotations

import dataclasses

import pytest

from penstock._lab.record import Frame, ProcessLook, ThreadLook
from penstock._lab.stall import (
    CERTAIN_S,
    IO_S,
    KNOWN_S,
    LIKELY_S,
    NEVER,
    SHUTDOWN_S,
    SLEEP_S,
    Beat,
    Judgement,
    Stillness,
    call_of,
    has_moved,
    is_idle,
    judge,
    sleeps,
    wait_of,
)

TORCH = "/site-packages/torch/utils/data"
POLL = "7 0x7f 0x1 0x1388 0x1 0x0 0x0"
PRIVATE = "202 0x55 0x189 0x0 0x0 0x0 0xffffffff"  # a lock of this process, without a time limit
PRIVATE_UNTIL = "202 0x55 0x189 0x0 0x7ffe 0x0 0xffffffff"
SHARED = "202 0x55 0x109 0x0 0x0 0x0 0xffffffff"
NAP = "230 0x1 0x1 0x7ffe 0x0 0x0 0x0"
RECEIVE = "45 0x13 0x7f 0xa 0x0 0x0 0x0"


@pytest.fixture(autouse=True)
def this_is_a_pc(monkeypatch):
    """System calls above are numbered as on x86_64."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def thread(*frames, tid=7, wchan="futex_do_wait", syscall=PRIVATE, **fields):
    """A thread; frames as "function file", innermost first."""
    told = tuple(Frame(text.split()[0], text.split()[1], 1) for text in frames)
    return ThreadLook(tid=tid, frames=told, wchan=wchan, syscall=syscall, state="S", **fields)


WAITS = thread(
    "Queue.get multiprocessing/queues.py", f"_Iter._try_get_data {TORCH}/dataloader.py", "main train.py",
    tid=1, wchan="poll_schedule_timeout", syscall=POLL,
)  # fmt: skip
IDLE = (
    "wait multiprocessing/connection.py",
    "Queue.get multiprocessing/queues.py",
    f"_worker_loop {TORCH}/_utils/worker.py",
)
BUSY = (
    "Data.__getitem__ train.py",
    f"fetch {TORCH}/_utils/fetch.py",
    f"_worker_loop {TORCH}/_utils/worker.py",
)
FEEDER = thread("_feed multiprocessing/queues.py", tid=8)
SERVER = thread("_serve multiprocessing/resource_sharer.py", tid=9, wchan="inet_csk_accept", syscall=RECEIVE)

MAIN = ProcessLook(pid=1, role="main", threads=(WAITS,))
IDLE_WORKER = ProcessLook(
    pid=7, role="worker", threads=(thread(*IDLE, wchan="poll_schedule_timeout", syscall=POLL), FEEDER)
)


def worker(main, *others):
    """A worker whose main thread is in the user's code."""
    return ProcessLook(pid=7, role="worker", threads=(main, *others))


# ---- stillness ---------------------------------------------------------------------------------


def still(*moments, step_s=0.25):
    """How long it was still at each moment."""
    stillness = Stillness()
    return [stillness.see(10 + step_s * turn, beats) for turn, beats in enumerate(moments)]


def test_a_patient_that_does_nothing_is_still():
    assert still({7: Beat(1.0)}, {7: Beat(1.0)}, {7: Beat(1.0)}) == [0, 0.25, 0.5]


def test_computing_is_a_move():
    assert still({7: Beat(1.0)}, {7: Beat(1.0)}, {7: Beat(1.1)}) == [0, 0.25, 0]


def test_a_poll_now_and_then_is_no_move():
    assert not has_moved(Beat(1.0), Beat(1.0004), 0.25)


def test_reading_is_a_move():
    assert has_moved(Beat(nbytes=5), Beat(nbytes=6), 0.25)


def test_waiting_for_a_cpu_is_a_move():
    assert has_moved(Beat(queued_s=1.0), Beat(queued_s=1.2), 0.25)


@pytest.mark.parametrize("state", ["R", "D"])
def test_a_thread_that_could_run_or_waits_for_a_disk_is_a_move(state):
    assert has_moved(Beat(), Beat(state=state), 0.25)


def test_a_birth_and_a_death_are_moves():
    assert still({7: Beat()}, {7: Beat()}, {7: Beat(), 8: Beat()}, {7: Beat()}) == [0, 0.25, 0, 0]


def test_a_pause_of_ours_counts_little():
    assert still({7: Beat()}, {7: Beat()}, step_s=60) == [0, 0.5]


def test_our_own_disturbance_is_excused():
    stillness = Stillness()
    stillness.see(10, {7: Beat(1.0)})
    stillness.see(10.25, {7: Beat(1.0)})
    stillness.excuse(10.5, {7: Beat(2.0)})
    assert stillness.see(10.75, {7: Beat(2.0)}) == 0.5


def test_news_end_the_stillness():
    stillness = Stillness()
    stillness.see(10, {})
    stillness.see(10.25, {})
    stillness.reset()
    assert stillness.seconds == 0


# ---- judgement ---------------------------------------------------------------------------------


def test_all_workers_idle_is_a_lost_batch():
    assert judge((MAIN, IDLE_WORKER)) == Judgement("lost-batch", CERTAIN_S)


def test_a_lost_batch_that_was_told_needs_no_more_time():
    assert judge((MAIN, IDLE_WORKER), has_lost_batch=True) == Judgement("lost-batch", KNOWN_S)


def test_a_missing_worker_will_be_noticed_by_torch():
    assert judge((MAIN, IDLE_WORKER), missing=1) == Judgement("lost-batch", IO_S)


@pytest.mark.parametrize("others", [(), (FEEDER, SERVER)], ids=["first batch", "later batch"])
def test_a_lock_that_no_thread_of_the_process_can_release_is_certain(others):
    assert judge((MAIN, worker(thread(*BUSY), *others))) == Judgement("lock", CERTAIN_S)


def test_threads_that_wait_for_one_another_are_certain():
    pool = thread("_worker concurrent/futures/thread.py", tid=10)
    assert judge((MAIN, worker(thread(*BUSY), pool))) == Judgement("lock", CERTAIN_S)


def test_a_lock_shared_with_other_processes_is_likely():
    assert judge((MAIN, worker(thread(*BUSY, syscall=SHARED)))) == Judgement("lock", LIKELY_S)


def test_a_lock_with_a_time_limit_is_not_certain():
    assert judge((MAIN, worker(thread(*BUSY, syscall=PRIVATE_UNTIL)))) == Judgement("lock", LIKELY_S)


def test_a_thread_that_waits_for_a_socket_may_release_the_lock():
    client = thread("read client.py", tid=10, wchan="wait_woken", syscall=RECEIVE)
    assert judge((MAIN, worker(thread(*BUSY), client))) == Judgement("lock", IO_S)


def test_waiting_for_a_thread_that_sleeps_is_slow():
    sleeper = thread("run threading.py", tid=10, wchan="hrtimer_nanosleep", syscall=NAP)
    assert judge((MAIN, worker(thread(*BUSY), sleeper))) == Judgement("sleep", SLEEP_S)


def test_a_socket_gets_more_time():
    assert judge((MAIN, worker(thread(*BUSY, wchan="wait_woken", syscall=RECEIVE)))) == Judgement("io", IO_S)


def test_a_socket_gets_even_more_time_while_another_process_works():
    server = ProcessLook(pid=9, role="other", cpu_moved=True)
    reads = worker(thread(*BUSY, wchan="wait_woken", syscall=RECEIVE))
    assert judge((MAIN, reads, server)) == Judgement("io", SLEEP_S)


def test_waiting_for_a_child_that_sleeps_is_slow():
    nap = ProcessLook(pid=9, parent=7, role="other", threads=(thread(tid=9, wchan="hrtimer_nanosleep"),))
    assert (
        judge((MAIN, worker(thread(*BUSY, wchan="do_wait", syscall="61 0x9"), FEEDER), nap)).kind == "sleep"
    )


def test_a_deliberate_sleep_is_slow():
    assert judge((MAIN, worker(thread(*BUSY, wchan="hrtimer_nanosleep", syscall=NAP)))).kind == "sleep"


def test_polling_is_slow():
    assert judge((MAIN, worker(thread(*BUSY, switches_moved=True)))) == Judgement("sleep", SLEEP_S)


def test_the_worker_that_may_still_move_decides():
    sleeper = worker(thread(*BUSY, wchan="hrtimer_nanosleep", syscall=NAP))
    assert judge((MAIN, worker(thread(*BUSY)), sleeper)).kind == "sleep"


def test_without_workers_the_consumer_itself_is_judged():
    alone = thread("Data.__getitem__ train.py", f"_Iter._next_data {TORCH}/dataloader.py", tid=1)
    assert judge((ProcessLook(pid=1, role="main", threads=(alone,)),)) == Judgement("lock", CERTAIN_S)


def test_a_sampler_that_sleeps_loses_no_batch():
    sampler = thread(
        "Curriculum.__iter__ train.py", f"_Iter._next_index {TORCH}/dataloader.py", "main train.py",
        tid=1, wchan="hrtimer_nanosleep", syscall=NAP,
    )  # fmt: skip
    assert judge((ProcessLook(pid=1, role="main", threads=(sampler,)), IDLE_WORKER)).kind == "sleep"


def test_a_process_that_hides_its_stack_gets_time():
    hidden = ProcessLook(pid=7, role="worker")
    assert judge((MAIN, hidden)) == Judgement("native", IO_S)


def test_without_stacks_the_word_of_the_consumer_counts():
    blind = ProcessLook(
        pid=1, role="main", threads=(thread(tid=1, wchan="poll_schedule_timeout", syscall=POLL),)
    )
    idle = worker(thread(wchan="poll_schedule_timeout", syscall=POLL))
    assert judge((blind, idle)) == Judgement("none", NEVER)
    assert judge((blind, idle), waiting=frozenset({1})) == Judgement("io", IO_S)


def test_another_thread_may_iterate_for_the_consumer():
    fetcher = dataclasses.replace(WAITS, tid=2)
    waits = ProcessLook(pid=1, role="main", threads=(thread("get queue.py", "main train.py", tid=1), fetcher))
    assert judge((waits, IDLE_WORKER)) == Judgement("lost-batch", CERTAIN_S)


def test_a_consumer_that_goes_on_is_not_held_up_by_its_thread():
    fetcher = dataclasses.replace(WAITS, tid=2)
    step = thread("step train.py", tid=1, wchan="hrtimer_nanosleep", syscall=NAP)
    assert judge((ProcessLook(pid=1, role="main", threads=(step, fetcher)), IDLE_WORKER)).kind == "none"


def rank(pid, *frames, **fields):
    return ProcessLook(pid=pid, role="rank", threads=(thread(*frames, tid=pid, **fields),))


LAUNCHER = ProcessLook(pid=1, role="main", threads=(thread("join torch/multiprocessing/spawn.py", tid=1),))
REDUCES = "all_reduce torch/distributed/distributed_c10d.py"


def test_ranks_that_all_wait_for_one_another_are_certain():
    assert judge((LAUNCHER, rank(2, REDUCES), rank(3, REDUCES))) == Judgement("ranks", CERTAIN_S)


def test_a_rank_that_is_elsewhere_makes_it_likely():
    assert judge((LAUNCHER, rank(2, REDUCES), rank(3, "save train.py"))) == Judgement("ranks", LIKELY_S)


def test_a_rank_that_sleeps_makes_the_others_slow():
    sleeper = rank(3, "step train.py", wchan="hrtimer_nanosleep", syscall=NAP)
    assert judge((LAUNCHER, rank(2, REDUCES), sleeper)) == Judgement("sleep", SLEEP_S)


def test_a_rank_that_stands_still_in_its_backward_pass_waits_for_others():
    backward = "_engine_run_backward torch/autograd/graph.py"
    sleeper = rank(3, "evaluate train.py", wchan="hrtimer_nanosleep", syscall=NAP)
    assert judge((LAUNCHER, rank(2, backward), sleeper)) == Judgement("sleep", SLEEP_S)
    alone = ProcessLook(pid=1, role="main", threads=(thread(backward, tid=1),))
    assert judge((alone,)) == Judgement("none", NEVER)


def test_a_shutdown_may_take_five_seconds_for_each_worker():
    ends = thread("join multiprocessing/process.py", f"_shutdown_workers {TORCH}/dataloader.py", tid=1)
    looks = (ProcessLook(pid=1, role="main", threads=(ends,)), IDLE_WORKER, IDLE_WORKER)
    assert judge(looks) == Judgement("shutdown", 3 * SHUTDOWN_S)


def test_a_program_that_waits_for_something_else_is_left_alone():
    step = ProcessLook(pid=1, role="main", threads=(thread("step train.py", tid=1),))
    assert judge((step, IDLE_WORKER)) == Judgement("none", NEVER)


# ---- parts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (("select selectors.py", f"_try_get_data {TORCH}/dataloader.py"), "batch"),
        ((f"_MultiProcessingDataLoaderIter.__init__ {TORCH}/dataloader.py",), "start"),
        ((f"_shutdown_workers {TORCH}/dataloader.py", f"__next__ {TORCH}/dataloader.py"), "shutdown"),
        (("select selectors.py", "wait penstock/_engine/runtime.py"), "batch"),
        (("sleep train.py",), "none"),
        ((), "none"),
    ],
)
def test_what_a_consumer_waits_for(frames, kind):
    assert wait_of(ProcessLook(pid=7, threads=(thread(*frames),))) == kind


def test_a_worker_inside_the_dataset_is_not_idle():
    assert is_idle(IDLE_WORKER)
    assert not is_idle(worker(thread(*BUSY)))
    assert not is_idle(worker(thread(f"default_collate {TORCH}/_utils/collate.py", *BUSY[1:])))
    assert not is_idle(worker(thread()))


def test_select_without_files_is_a_sleep():
    assert sleeps(thread(wchan="", syscall="23 0x0 0x0 0x0 0x0 0x7ffe 0x0"))
    assert not sleeps(thread(wchan="", syscall="23 0x5 0x0 0x0 0x0 0x7ffe 0x0"))


def test_a_call_without_a_name_keeps_its_number():
    assert call_of(thread(syscall="999 0x1")) == ("999", (1,))
    assert call_of(thread(syscall="running")) == ("", ())
    assert call_of(thread(syscall="98 0x1"), machine="aarch64") == ("futex", (1,))
