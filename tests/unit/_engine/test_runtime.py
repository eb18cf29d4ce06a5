"""Events carried in, decisions carried out, by a backend that follows a script."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from penstock._engine import runtime as module
from penstock._engine.events import Answered, Exhausted, Noticed, Rewound, WorkerLost
from penstock._engine.mistakes import Memory, Mistakes
from penstock._engine.obituary import worker_died
from penstock._engine.resume import Journal
from penstock._engine.runtime import Recovery, Runtime, foreign_process
from penstock.errors import SettingsError, WorkerLostError


class Script:
    """A backend that tells prepared events, one list at a time."""

    def __init__(self, *told, room=1000):
        self.told = list(told)
        self.room = room
        self.sent, self.discarded, self.rewinds, self.waits = [], [], [], []
        self.stuck, self.looks = None, []
        self.respawned, self.condemned, self.is_gone = [], [], False
        self.verdicts = []
        self.closed = 0

    def send(self, worker, number, attempt, indices):
        if self.room == 0:
            return False
        self.room -= 1
        self.sent.append((worker, number, indices))
        return True

    def wait(self, timeout_s):
        self.waits.append(timeout_s)
        assert self.told, "the runtime waits for ever"
        return self.told.pop(0)

    def open(self, payload):
        if isinstance(payload, Exception):
            raise payload
        return payload

    def discard(self, payload):
        self.discarded.append(payload)

    def rewind(self, shared_seed, epoch=0, attributes=()):
        self.rewinds.append((shared_seed, *attributes))

    def judge(self, worker, *, is_sharded):
        self.verdicts.append((worker, is_sharded))

    def find_stuck(self, workers):
        self.looks.append(workers)
        return self.stuck

    def respawn(self, order):
        self.respawned.append(order[:4])

    def condemn(self, number, position):
        self.condemned.append((number, position))

    def close(self):
        self.closed += 1


class Counting:
    """A sampler that counts what was drawn."""

    def __init__(self, length):
        self.drawn, self.length = 0, length

    def __iter__(self):
        return self

    def __next__(self):
        if self.drawn == self.length:
            raise StopIteration
        self.drawn += 1
        return [self.drawn - 1]


def answer(number, workers=1, attempt=0, payload=None):
    return Answered(number % workers, number, attempt, f"batch {number}" if payload is None else payload)


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only while a backend is waited for."""

    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: made.now)
    real = Script.wait

    def wait(self, timeout_s):
        heard = real(self, timeout_s)
        if not heard:
            made.now += timeout_s
        return heard

    monkeypatch.setattr(Script, "wait", wait)
    return made


def begun(*told, workers=1, depth=2, length=100, in_order=True, room=1000, rebirths=(), **recovery):
    """A runtime at the start of an epoch, its backend and its sampler."""
    backend, sampler = Script(*told, room=room), Counting(length)
    recovery = Recovery(rebirths=tuple(rebirths), **recovery)
    runtime = Runtime(backend, workers=workers, depth=depth, in_order=in_order, recovery=recovery)
    runtime.begin(sampler, is_first=True, shared_seed=None)
    return runtime, backend, sampler


def batches(runtime, count=100, timeout_s=0):
    got = []
    try:
        for _ in range(count):
            got.append(runtime.next_batch(timeout_s))
    except StopIteration:
        got.append("end")
    return got


# ---- an epoch -----------------------------------------------------------------------------------


def test_an_epoch_begins_with_depth_tickets_for_each_worker():
    _, backend, sampler = begun(workers=2, depth=3)
    assert sampler.drawn == 6
    assert backend.sent == [(number % 2, number, [number]) for number in range(6)]


def test_every_batch_handed_out_draws_one_ticket():
    runtime, _, sampler = begun([answer(0)], [answer(1)])
    assert batches(runtime, 2) == ["batch 0", "batch 1"]
    assert sampler.drawn == 4


def test_batches_come_in_order():
    runtime, _, _ = begun([answer(1, 2), answer(2, 2)], [answer(0, 2)], workers=2)
    assert batches(runtime, 3) == ["batch 0", "batch 1", "batch 2"]


def test_batches_come_as_they_arrive():
    runtime, _, _ = begun([answer(1, 2), answer(2, 2)], [answer(0, 2)], workers=2, in_order=False)
    assert batches(runtime, 3) == ["batch 1", "batch 2", "batch 0"]


def test_an_epoch_ends_with_its_last_batch():
    runtime, _, _ = begun([answer(0), answer(1)], length=2)
    assert batches(runtime) == ["batch 0", "batch 1", "end"]


def test_an_epoch_without_tickets_ends_at_once():
    runtime, _, _ = begun(length=0)
    assert batches(runtime) == ["end"]


def test_a_closed_runtime_has_no_batches():
    runtime, _, _ = begun([answer(0)])
    runtime.close()
    assert batches(runtime) == ["end"]


def test_a_stale_answer_is_discarded():
    runtime, backend, _ = begun([answer(0, attempt=3, payload="late"), answer(0)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.discarded == ["late"]


def test_a_second_answer_is_discarded():
    runtime, backend, _ = begun([answer(0), answer(0, payload="again")])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.discarded == ["again"]


def test_a_workers_exception_is_raised_in_the_place_of_its_batch():
    runtime, _, _ = begun([answer(1), answer(0, payload=ValueError("bad"))])
    with pytest.raises(ValueError, match="bad"):
        runtime.next_batch(0)
    assert batches(runtime, 1) == ["batch 1"]


def test_an_exhausted_worker_costs_its_tickets_and_draws_one():
    runtime, backend, sampler = begun([Exhausted(0)], [answer(1, 2), answer(3, 2)], workers=2)
    assert batches(runtime, 2) == ["batch 1", "batch 3"]
    assert backend.sent[4] == (1, 4, [4])
    assert sampler.drawn == 7


def test_an_epoch_ends_when_every_worker_is_exhausted():
    runtime, _, _ = begun([Exhausted(0), Exhausted(1)], workers=2)
    assert batches(runtime) == ["end"]


def test_a_sampler_that_fails_does_not_keep_the_batch():
    runtime, backend, sampler = begun([answer(0)])
    sampler.__class__ = type("Failing", (), {"__next__": lambda self: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        runtime.next_batch(0)
    assert backend.discarded == ["batch 0"]


# ---- room ---------------------------------------------------------------------------------------


class Enough(Exception):
    """What a signal handler raises."""


def test_an_exception_that_comes_while_it_waits_disturbs_nothing():
    runtime, backend, _ = begun([answer(0)])
    wait = backend.wait

    def interrupted(timeout_s):
        backend.is_asleep, backend.wait = True, wait
        raise Enough

    backend.wait = interrupted
    with pytest.raises(Enough):
        runtime.next_batch(0)
    assert batches(runtime, 1) == ["batch 0"]


def test_an_exception_in_the_middle_of_a_step_is_the_end():
    runtime, _, _ = begun([answer(0)])

    def interrupted(number):
        raise Enough

    runtime._scheduler.deliver = interrupted
    with pytest.raises(Enough):
        runtime.next_batch(0)
    with pytest.raises(WorkerLostError) as caught:
        runtime.next_batch(0)
    assert str(caught.value) == (
        "[PS605] this iterator was interrupted in the middle of a step and cannot go on\n"
        "  why:  a signal handler raised an exception inside an earlier call of `next`\n"
        "  fix:  call `iter(loader)` again; to limit the wait for a batch pass `timeout`, not an alarm\n"
        "  more: penstock explain PS605"
    )


def test_a_ticket_without_room_waits_for_it():
    runtime, backend, _ = begun([answer(0)], depth=3, room=1)
    assert len(backend.sent) == 1
    backend.room = 1
    assert batches(runtime, 1) == ["batch 0"]
    assert [number for _, number, _ in backend.sent] == [0, 1]


def test_a_ticket_without_room_is_not_overtaken():
    runtime, backend, _ = begun([answer(0, 2)], workers=2, room=1)
    backend.room = 10
    batches(runtime, 1)
    assert [number for _, number, _ in backend.sent] == [0, 1, 2, 3, 4]


def test_a_void_ticket_is_not_sent_when_there_is_room():
    runtime, backend, _ = begun([Exhausted(0)], [answer(1, 2)], workers=2, depth=2, room=2)
    backend.room = 0
    runtime._advance(0)
    backend.room = 10
    assert batches(runtime, 1) == ["batch 1"]
    assert [number for _, number, _ in backend.sent] == [0, 1, 3, 4, 5]


# ---- waiting ------------------------------------------------------------------------------------


def test_without_a_timeout_the_runtime_looks_around_now_and_then():
    runtime, backend, _ = begun([], [], [answer(0)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.waits == [module.LOOK_S] * 3
    assert backend.looks == [[0], [0]]


def test_the_users_timeout_ends_a_wait_with_what_each_worker_does(clock):
    runtime, _, _ = begun([answer(0, 3), answer(3, 3)], [], [], workers=3)
    assert batches(runtime, 1, timeout_s=4) == ["batch 0"]
    with pytest.raises(WorkerLostError) as caught:
        runtime.next_batch(4)
    assert str(caught.value) == (
        "[PS602] DataLoader timed out after 4 seconds\n"
        "  why:  worker 0 has sample indices [6]; worker 1 has sample indices [1]; "
        "worker 2 has sample indices [2]\n"
        "  fix:  look for a network read or a lock in the dataset, or raise `timeout`\n"
        "  more: penstock explain PS602"
    )


def test_the_users_timeout_is_kept(clock):
    runtime, _, _ = begun([], [])
    with pytest.raises(WorkerLostError):
        runtime.next_batch(3)
    assert clock.now == 103


def test_a_wait_after_a_timeout_goes_on(clock):
    runtime, _, _ = begun([], [answer(0)])
    with pytest.raises(WorkerLostError):
        runtime.next_batch(1)
    assert runtime.next_batch(1) == "batch 0"


# ---- workers that are stuck ---------------------------------------------------------------------


def test_a_stuck_worker_has_all_workers_started_again():
    second = Script([answer(0, 2, attempt=1)], [answer(1, 2, attempt=1)])
    runtime, first, _ = begun([], workers=2, depth=1, rebirths=[lambda: second])
    first.stuck = 1
    with pytest.warns(UserWarning, match="PS604") as caught:
        assert batches(runtime, 2) == ["batch 0", "batch 1"]
    assert first.closed == 1
    assert second.sent[:2] == [(0, 0, [0]), (1, 1, [1])]
    assert str(caught[0].message) == (
        "[PS604] worker 1 inherited a lock that another thread held at the fork, and nobody can release "
        "it: all workers were started again, and no batch was lost. Pass "
        "multiprocessing_context='forkserver' to start from a clean process at once."
    )


def test_what_was_made_before_workers_got_stuck_is_not_made_again():
    second = Script([answer(0, 2, attempt=1)])
    runtime, first, _ = begun([answer(1, 2)], [], workers=2, depth=1, rebirths=[lambda: second])
    first.stuck = 0
    with pytest.warns(UserWarning, match="PS604"):
        assert batches(runtime, 2) == ["batch 0", "batch 1"]
    assert [number for _, number, _ in second.sent] == [0, 2, 3]


def test_a_late_answer_of_a_stuck_worker_is_stale():
    second = Script([answer(0, attempt=0, payload="late"), answer(0, attempt=1)])
    runtime, first, _ = begun([], depth=1, rebirths=[lambda: second])
    first.stuck = 0
    with pytest.warns(UserWarning, match="PS604"):
        assert batches(runtime, 1) == ["batch 0"]
    assert second.discarded == ["late"]


def test_ways_to_begin_again_are_tried_in_turn():
    third = Script([answer(0, attempt=2)])
    second = Script([])
    runtime, first, _ = begun([], depth=1, rebirths=[lambda: second, lambda: third])
    first.stuck = second.stuck = 0
    with pytest.warns(UserWarning, match="PS604"):
        assert batches(runtime, 1) == ["batch 0"]
    assert second.closed == 1


def test_a_stuck_worker_without_another_way_is_an_error():
    runtime, backend, _ = begun([], [], [])
    backend.stuck = 0
    with pytest.raises(WorkerLostError):
        runtime.next_batch(0)


# ---- workers that die ---------------------------------------------------------------------------


def test_a_worker_that_dies_with_work_is_an_error():
    runtime, _, _ = begun([WorkerLost(0, 4121, -signal.SIGKILL)])
    with pytest.raises(WorkerLostError) as caught:
        runtime.next_batch(0)
    assert str(caught.value) == (
        "[PS601] DataLoader worker 0 (pid(s) 4121) is killed by signal: Killed (SIGKILL)\n"
        "  why:  it was loading sample indices [0]\n"
        "  fix:  load these samples at num_workers=0 to see the failure in the training process\n"
        "  more: penstock explain PS601"
    )


def test_what_was_made_before_the_death_is_delivered_first():
    runtime, _, _ = begun([answer(0), WorkerLost(0, 4121, 3)])
    assert batches(runtime, 1) == ["batch 0"]
    with pytest.raises(WorkerLostError, match="exited unexpectedly with exit code 3"):
        runtime.next_batch(0)


def test_a_death_is_told_again_to_whoever_asks_again():
    runtime, _, _ = begun([WorkerLost(0, 4121, 3)])
    for _ in range(2):
        with pytest.raises(WorkerLostError):
            runtime.next_batch(0)


def test_a_worker_that_dies_without_work_at_the_end_costs_nothing():
    runtime, _, _ = begun([answer(0), answer(1)], [WorkerLost(0, 4121, 0)], length=2)
    assert batches(runtime, 2) == ["batch 0", "batch 1"]
    assert batches(runtime) == ["end"]


def test_a_worker_that_died_without_work_is_an_error_when_its_turn_comes():
    runtime, _, _ = begun([answer(0), answer(1), WorkerLost(0, 4121, -9)])
    assert batches(runtime, 2) == ["batch 0", "batch 1"]
    with pytest.raises(WorkerLostError, match=r"it was loading sample indices \[2\]"):
        batches(runtime)


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (-signal.SIGSEGV, "is killed by signal: Segmentation fault (SIGSEGV)"),
        (-signal.SIGBUS, "is killed by signal: Bus error (SIGBUS)"),
        (0, "exited unexpectedly with exit code 0"),
        (17, "exited unexpectedly with exit code 17"),
    ],
)
def test_a_death_names_the_signal_or_the_status(status, what):
    assert worker_died(WorkerLost(2, 99, status), [1]).what == f"DataLoader worker 2 (pid(s) 99) {what}"


def test_a_death_by_a_signal_without_a_name_is_told():
    worker_died(WorkerLost(2, 99, -(signal.SIGRTMIN + 2)), [1])


@pytest.mark.parametrize(
    ("indices", "why"),
    [
        (None, ""),
        (7, "it was loading sample indices 7"),
        ([1, 2], "it was loading sample indices [1, 2]"),
        (list(range(20)), "it was loading sample indices 0, 1, 2, 3, 4, 5, 6, 7, … (20 in all)"),
    ],
)
def test_a_death_names_a_few_samples(indices, why):
    assert worker_died(WorkerLost(2, 99, 1), indices).why == why


def test_a_death_is_told_with_what_the_black_box_says():
    stack = 'Current thread 0x1 (most recent call first):\n  File "data.py", line 12 in __getitem__'
    lost = WorkerLost(2, 99, -signal.SIGSEGV, 3, 0, 1, 5, "fetching", stack)
    assert str(worker_died(lost, [4, 5])) == (
        "[PS601] DataLoader worker 2 (pid(s) 99) is killed by signal: Segmentation fault (SIGSEGV)\n"
        "  why:  it was loading sample indices [4, 5]; "
        "it was fetching sample index 5 (position 1 in its batch)\n"
        "        its last calls, the latest first:\n"
        '          File "data.py", line 12 in __getitem__\n'
        "  fix:  load these samples at num_workers=0 to see the failure in the training process\n"
        "  more: penstock explain PS601"
    )


def test_a_death_for_want_of_memory_is_told_with_the_remedy():
    assert str(worker_died(WorkerLost(2, 99, -signal.SIGKILL, phase="idle", was_oom=True), [1])) == (
        "[PS601] DataLoader worker 2 (pid(s) 99) is killed by signal: Killed (SIGKILL)\n"
        "  why:  it was loading sample indices [1]; it was idle; "
        "the kernel has killed a process here for want of memory since the workers were started\n"
        "  fix:  lower `num_workers`, `prefetch_factor` or `batch_size`, or raise the memory limit\n"
        "  more: penstock explain PS601"
    )


def test_a_worker_that_we_have_ended_is_told_as_such():
    lost = WorkerLost(2, 99, -signal.SIGKILL, reason="stalled")
    assert worker_died(lost, [1]).what == "DataLoader worker 2 (pid(s) 99) made no progress, and was ended"


# ---- workers that stall -------------------------------------------------------------------------


class Glass:
    """A lookout that remembers what it was shown."""

    is_on = True

    def __init__(self):
        self.shown, self.epochs = [], 0

    def begin(self):
        self.epochs += 1

    def look(self, backend, tickets):
        self.shown.append([(each.worker, each.number, each.indices) for each in tickets])


def watched(*told, **options):
    runtime, backend, _ = begun(*told, **options)
    runtime._lookout = Glass()
    return runtime, backend, runtime._lookout


def test_the_worker_that_holds_up_the_consumer_is_looked_at():
    runtime, backend, glass = watched([answer(1, 2)], [], [answer(0, 2)], workers=2)
    assert batches(runtime, 1) == ["batch 0"]
    assert glass.shown == [[(0, 0, [0])]]
    assert backend.waits == [module.LOOK_S] * 3


def test_out_of_order_every_busy_worker_is_looked_at_once():
    runtime, _, glass = watched([], [answer(1, 2)], workers=2, in_order=False)
    assert batches(runtime, 1) == ["batch 1"]
    assert glass.shown == [[(0, 0, [0]), (1, 1, [1])]]


def test_a_ticket_that_nobody_has_got_is_nobodys_stall():
    runtime, backend, glass = watched([answer(0)], [], [answer(1)], room=1)
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.room == 0
    runtime._look(runtime._scheduler.awaited())
    assert glass.shown == [[]]


def test_an_exception_in_a_look_does_not_tear_the_iterator():
    runtime, _, glass = watched([], [answer(0)])

    def look(backend, tickets):
        raise UserWarning

    glass.look = look
    with pytest.raises(UserWarning):
        runtime.next_batch(0)
    assert not runtime.is_torn
    assert batches(runtime, 1) == ["batch 0"]


def test_workers_that_are_late_for_the_next_epoch_are_looked_at():
    runtime, backend, glass = watched([answer(0), answer(1)], length=2, workers=2, depth=1)
    batches(runtime)
    backend.told = [[Rewound(0)], [], [Rewound(1)]]
    runtime.begin(Counting(2), is_first=False, shared_seed=None)
    assert glass.shown == [[(1, -2, None)]]
    assert glass.epochs == 1


def test_a_worker_that_could_not_be_forked_is_an_error_of_its_own():
    assert str(worker_died(WorkerLost(2, 0, 11), [1])) == (
        "[PS603] workers cannot be started: the system refused to fork worker 2\n"
        "  why:  errno 11\n"
        "  fix:  check free memory and the limit of processes (`ulimit -u`), or lower `num_workers`\n"
        "  more: penstock explain PS603"
    )


def test_an_iterator_in_a_fork_is_refused():
    error = foreign_process()
    assert type(error) is SettingsError
    assert str(error) == (
        "[PS006] this iterator belongs to the process that made it, and this is a fork of it\n"
        "  why:  its workers and batches stay with the parent\n"
        "  fix:  call `iter(loader)` in this process\n"
        "  more: penstock explain PS006"
    )


# ---- the next epoch -----------------------------------------------------------------------------


def rewound(runtime, backend, *told):
    backend.told = list(told)
    backend.sent.clear()
    runtime.begin(Counting(100), is_first=False, shared_seed=5)


def test_the_next_epoch_begins_when_every_worker_is_ready():
    runtime, backend, _ = begun(workers=2)
    rewound(runtime, backend, [Rewound(1)], [], [Rewound(0)])
    assert backend.rewinds == [(5,)]
    assert [number for _, number, _ in backend.sent] == [0, 1, 2, 3]


def test_what_is_left_of_an_epoch_is_discarded():
    runtime, backend, _ = begun([answer(0), answer(1)])
    batches(runtime, 1)
    rewound(runtime, backend, [answer(2, payload="late"), Rewound(0)])
    assert backend.discarded == ["batch 1", "late"]


def test_a_late_answer_is_not_taken_for_one_of_the_next_epoch():
    runtime, backend, _ = begun()
    rewound(runtime, backend, [answer(0, payload="late"), Rewound(0)], [answer(0)])
    assert batches(runtime, 1) == ["batch 0"]


def test_a_late_end_of_the_stream_does_not_begin_the_next_epoch():
    runtime, backend, _ = begun(workers=2)
    rewound(runtime, backend, [Exhausted(0), Rewound(1)], [Rewound(0)])
    assert backend.told == []
    assert [worker for worker, _, _ in backend.sent] == [0, 1, 0, 1]


def test_workers_that_were_exhausted_work_again_in_the_next_epoch():
    runtime, backend, _ = begun([Exhausted(0), Exhausted(1)], workers=2)
    batches(runtime)
    rewound(runtime, backend, [Rewound(0), Rewound(1)])
    assert [worker for worker, _, _ in backend.sent] == [0, 1, 0, 1]


def test_a_worker_that_dies_between_epochs_is_an_error():
    runtime, backend, _ = begun()
    with pytest.raises(WorkerLostError, match=r"it was loading sample indices \[0\]"):
        rewound(runtime, backend, [WorkerLost(0, 4121, -9)])


def test_a_worker_that_dies_idle_between_epochs_is_an_error():
    runtime, backend, _ = begun(length=0)
    with pytest.raises(WorkerLostError, match="4121"):
        rewound(runtime, backend, [WorkerLost(0, 4121, -9)])


# ---- what workers tell of their first samples ---------------------------------------------------


def judged(*told):
    """A runtime that divides streams, its backend, and the judge."""
    runtime, backend, _ = begun(*told, workers=2)
    runtime.mistakes = Mistakes(2, Memory(), is_iterable=True, cure=True, is_persistent=True)
    return runtime, backend


def noticed(worker, prefix=(b"a", b"b")):
    return Noticed(worker, (worker, prefix, ()))


def test_verdicts_go_to_the_workers():
    runtime, backend = judged([noticed(1)], [noticed(0)], [answer(0, 2)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.verdicts == [(0, True), (1, True)]


def test_a_lost_worker_does_not_hold_up_the_verdict():
    runtime, backend = judged([noticed(0)], [WorkerLost(1, 4121, -9)], [answer(0, 2)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.verdicts == [(0, False)]


def test_signs_of_the_epoch_before_are_not_taken_for_those_of_this_one():
    runtime, backend = judged()
    rewound(runtime, backend, [noticed(0), noticed(1)], [Rewound(0), noticed(0), Rewound(1)], [answer(0, 2)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.verdicts == []


def test_signs_that_come_before_others_are_ready_count():
    runtime, backend = judged()
    rewound(runtime, backend, [Rewound(0), noticed(0)], [Rewound(1)], [noticed(1), answer(0, 2)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.verdicts == [(0, True), (1, True)]


def test_without_a_judge_signs_are_nothing():
    runtime, backend, _ = begun([noticed(0), answer(0)])
    assert batches(runtime, 1) == ["batch 0"]
    assert backend.verdicts == []


def test_the_journal_keeps_what_was_answered():
    runtime, _, _ = begun([Answered(0, 0, 0, "batch 0", state=b"there")])
    runtime.journal = Journal(1)
    batches(runtime, 1)
    assert runtime.journal.plan(0, [0]).state == b"there"


def test_new_values_of_attributes_go_to_workers_and_are_kept_for_later_ones():
    runtime, backend, _ = begun()
    for value in ("a", "b"):
        backend.told = [[Rewound(0)]]
        runtime.begin(Counting(1), is_first=False, shared_seed=None, attributes=(value,))
    assert backend.rewinds == [(None, "a"), (None, "b")]
    assert runtime.attributes == ("a", "b")


# ---- the end ------------------------------------------------------------------------------------


def test_closing_discards_what_nobody_took():
    runtime, backend, _ = begun([answer(0), answer(1)])
    batches(runtime, 1)
    runtime.close()
    assert backend.discarded == ["batch 1"]
    assert backend.closed == 1


def test_closing_twice_is_closing_once():
    runtime, backend, _ = begun()
    runtime.close()
    runtime.close()
    assert backend.closed == 1
    assert runtime.is_closed


# ---- a worker dies --------------------------------------------------------------------------------


def lost(worker=0, position=None, status=-signal.SIGSEGV, pid=7, number=0):
    return WorkerLost(worker, pid, status, number, position=position)


def test_a_successor_does_the_tickets_of_a_lost_worker_again_in_their_order():
    runtime, backend, _ = begun(
        [answer(0, 2), lost(0)], [answer(1, 2)], [answer(2, 2, 1)], [answer(3, 2)], [answer(4, 2)],
        workers=2, length=5, max_restarts=4,
    )  # fmt: skip
    assert batches(runtime) == [f"batch {k}" for k in range(5)] + ["end"]
    assert backend.respawned == [(0, 1, None, 0)]
    assert backend.sent == [(0, 0, [0]), (1, 1, [1]), (0, 2, [2]), (1, 3, [3]), (0, 2, [2]), (0, 4, [4])]


def test_a_late_answer_to_an_earlier_attempt_is_dropped():
    runtime, backend, _ = begun(
        [lost(0)], [answer(0, payload="late"), answer(0, attempt=1)], length=1, max_restarts=1
    )
    assert batches(runtime) == ["batch 0", "end"]
    assert backend.discarded == ["late"]


def test_a_ticket_that_was_not_sent_yet_is_sent_once():
    runtime, backend, _ = begun(
        [lost(0)], [answer(0, attempt=1)], [answer(1, attempt=1)], length=2, room=1, max_restarts=1
    )
    backend.respawn = lambda *_: setattr(backend, "room", 1000)
    assert batches(runtime) == ["batch 0", "batch 1", "end"]
    assert [number for _, number, _ in backend.sent] == [0, 0, 1]


def test_successors_wait_longer_and_longer_and_meanwhile_the_others_work(clock):
    died = [[lost(0, position=k)] for k in range(4)]
    runtime, backend, _ = begun(
        *died[:3], [answer(1, 2)], [], died[3], [], [answer(0, 2, 4)],
        workers=2, depth=1, length=2, max_restarts=9,
    )  # fmt: skip
    started = clock.now
    assert batches(runtime) == ["batch 0", "batch 1", "end"]
    assert [life for _, life, *_ in backend.respawned] == [1, 2, 3, 4]
    assert clock.now - started == pytest.approx(0.3)


def test_when_the_restarts_are_spent_the_error_comes_in_its_turn():
    runtime, _, _ = begun([lost(1), lost(1)], [answer(0, 2)], workers=2, depth=1, length=2, max_restarts=1)
    assert batches(runtime, 1) == ["batch 0"]
    with pytest.raises(WorkerLostError, match="PS601"):
        runtime.next_batch(0)


def test_a_sample_that_kills_is_an_error_that_names_it_and_the_epoch_goes_on(clock):
    runtime, _, _ = begun(
        [lost(0)],
        [lost(0, position=0)],
        [lost(0, position=0)],
        [],
        [answer(1, attempt=3)],
        length=2,
        max_restarts=9,
    )
    with pytest.raises(WorkerLostError) as caught:
        runtime.next_batch(0)
    assert str(caught.value) == (
        "[PS601] DataLoader worker 0 (pid(s) 7) is killed by signal: Segmentation fault (SIGSEGV)\n"
        "  why:  so did its predecessors, at the same sample index 0\n"
        "  fix:  load dataset[0] by itself to see the failure; on_error='skip' goes on without it\n"
        "  more: penstock explain PS601"
    )
    assert batches(runtime) == ["batch 1", "end"]


def test_a_sample_that_kills_is_left_out_where_the_policy_says_so():
    runtime, backend, _ = begun(
        [lost(0, position=0)], [lost(0, position=0)], [answer(0, attempt=2)],
        length=1, max_restarts=9, raises_on_bad=False,
    )  # fmt: skip
    assert batches(runtime) == ["batch 0", "end"]
    assert backend.condemned == [(0, 0)]


def test_another_zygote_is_born_when_all_workers_are_gone():
    second = Script([answer(1, 2, 1)], [answer(2, 2, 0)])
    runtime, first, _ = begun([answer(0, 2), lost(0), lost(1)], workers=2, depth=1, length=3,
                              max_restarts=4, again=lambda: second)  # fmt: skip
    first.is_gone = True
    assert batches(runtime) == ["batch 0", "batch 1", "batch 2", "end"]
    assert first.closed == 1
    assert second.sent == [(1, 1, [1]), (0, 2, [2])]


def test_a_worker_that_dies_between_epochs_is_replaced_and_begins_with_the_next():
    runtime, backend, _ = begun([answer(0, 2), answer(1, 2)], workers=2, depth=1, length=2, max_restarts=4)
    assert batches(runtime) == ["batch 0", "batch 1", "end"]
    backend.told = [[lost(0)], [Rewound(1)], [answer(0, 2), answer(1, 2)]]
    runtime.begin(Counting(2), is_first=False, shared_seed=5, epoch=1)
    assert batches(runtime) == ["batch 0", "batch 1", "end"]
    assert backend.respawned == [(0, 1, 5, 1)]


def test_a_zygote_that_dies_between_epochs_is_replaced():
    second = Script([answer(0, 2), answer(1, 2)])
    runtime, first, _ = begun([answer(0, 2), answer(1, 2)], workers=2, depth=1, length=2,
                              max_restarts=4, again=lambda: second)  # fmt: skip
    assert batches(runtime) == ["batch 0", "batch 1", "end"]
    first.is_gone, first.told = True, [[lost(0), lost(1)]]
    runtime.begin(Counting(2), is_first=False, shared_seed=None)
    assert batches(runtime) == ["batch 0", "batch 1", "end"]
