"""The scheduler decides as torch does, whatever the workers do."""

from __future__ import annotations

import itertools
from collections import deque

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock._engine import events
from penstock._engine.runtime import Runtime
from penstock._engine.scheduler import Scheduler

# ---- the same as torch --------------------------------------------------------------------------


class Pool:
    """Workers with queues of tickets; a list of numbers decides who answers next."""

    def __init__(self, workers, lengths, choices):
        self.queues = [deque() for _ in range(workers)]
        self.left = list(lengths)  # batches that each worker still has; None without end
        self.ended = [False] * workers
        self.choices = itertools.chain(choices, itertools.repeat(0))
        self.log = []

    def put(self, worker, number, indices):
        self.log.append(("assign", worker, number, indices))
        if not self.ended[worker]:  # a worker that has ended drops its tickets
            self.queues[worker].append(number)

    def get(self):
        """(worker, number, is_end) of the next answer."""
        busy = [worker for worker, queue in enumerate(self.queues) if queue]
        worker = busy[next(self.choices) % len(busy)]
        number = self.queues[worker].popleft()
        if self.left[worker] == 0:
            self.ended[worker] = True
            self.queues[worker].clear()
            return worker, number, True
        if self.left[worker] is not None:
            self.left[worker] -= 1
        return worker, number, False


class TorchModel:
    """`_MultiProcessingDataLoaderIter` of torch 2.13, its scheduling only, line by line."""

    def __init__(self, pool, workers, depth, sampler, *, in_order):
        self.pool, self.workers, self.depth, self.sampler, self.in_order = (
            pool,
            workers,
            depth,
            sampler,
            in_order,
        )
        self.send_idx = self.rcvd_idx = self.tasks_outstanding = 0
        self.task_info = {}
        self.status = [True] * workers
        self.num_tasks = [0] * workers
        self.cycle = itertools.cycle(range(workers))
        for _ in range(depth * workers):
            self.try_put_index()

    def try_put_index(self):
        max_tasks = self.depth * self.workers
        assert self.tasks_outstanding < max_tasks
        try:
            index = next(self.sampler)
        except StopIteration:
            return
        for _ in range(self.workers):
            worker = next(self.cycle)
            if self.status[worker] and (
                self.in_order or self.num_tasks[worker] < max_tasks // sum(self.status)
            ):
                break
        else:
            return
        self.pool.put(worker, self.send_idx, index)
        self.task_info[self.send_idx] = (worker,)
        self.num_tasks[worker] += 1
        self.tasks_outstanding += 1
        self.send_idx += 1

    def process_data(self, number, worker):
        self.num_tasks[worker] -= 1
        self.try_put_index()
        return number

    def __iter__(self):
        return self

    def __next__(self):  # noqa: C901 - torch's own, to be compared line by line
        while True:
            while self.rcvd_idx < self.send_idx:
                info = self.task_info.get(self.rcvd_idx)
                if info:
                    if len(info) == 2 or self.status[info[0]]:
                        break
                    del self.task_info[self.rcvd_idx]
                self.rcvd_idx += 1
            else:
                raise StopIteration
            if len(self.task_info[self.rcvd_idx]) == 2:
                worker, number = self.task_info.pop(self.rcvd_idx)
                self.rcvd_idx += 1
                return self.process_data(number, worker)
            worker, number, is_end = self.pool.get()
            self.tasks_outstanding -= 1
            if is_end:
                self.status[worker] = False
                self.try_put_index()
                continue
            if number != self.rcvd_idx:
                if not self.in_order:
                    return self.process_data(number, self.task_info.pop(number)[0])
                self.task_info[number] += (number,)
            else:
                worker = self.task_info.pop(number)[0]
                self.rcvd_idx += 1
                return self.process_data(number, worker)


class Backend:
    """Our runtime's view of the same pool."""

    def __init__(self, pool):
        self.pool = pool

    def send(self, worker, number, attempt, indices):
        self.pool.put(worker, number, indices)
        return True

    def wait(self, timeout_s):
        worker, number, is_end = self.pool.get()
        return [events.Exhausted(worker) if is_end else events.Answered(worker, number, 0, number)]

    def open(self, payload):
        return payload

    def find_stuck(self, workers):
        return None

    def discard(self, payload):
        raise AssertionError(f"dropped {payload}")


def epoch_of_torch(pool, workers, depth, sampler, in_order):
    for number in TorchModel(pool, workers, depth, sampler, in_order=in_order):
        pool.log.append(("deliver", number))
    return pool.log


def epoch_of_ours(pool, workers, depth, sampler, in_order):
    runtime = Runtime(Backend(pool), workers=workers, depth=depth, in_order=in_order)
    runtime.begin(sampler, is_first=True, shared_seed=None)
    while True:
        try:
            number = runtime.next_batch(0)
        except StopIteration:
            return pool.log
        # torch draws the next ticket before it hands the batch out, and so do we.
        pool.log.append(("deliver", number))


SIZES = {"workers": st.integers(1, 4), "depth": st.integers(1, 3), "in_order": st.booleans()}
CHOICES = st.lists(st.integers(0, 11), max_size=60)


@given(**SIZES, batches=st.integers(0, 30), choices=CHOICES)
def test_a_map_style_epoch_is_scheduled_as_by_torch(workers, depth, in_order, batches, choices):
    def epoch(run):
        pool = Pool(workers, [None] * workers, choices)
        return run(pool, workers, depth, iter(range(batches)), in_order)

    ours = epoch(epoch_of_ours)
    assert ours == epoch(epoch_of_torch)
    delivered = [entry[1] for entry in ours if entry[0] == "deliver"]
    assert sorted(delivered) == list(range(batches))
    assert not in_order or delivered == sorted(delivered)


@given(**SIZES, data=st.data(), choices=CHOICES)
def test_an_iterable_style_epoch_is_scheduled_as_by_torch(workers, depth, in_order, data, choices):
    lengths = data.draw(st.lists(st.integers(0, 7), min_size=workers, max_size=workers))

    def epoch(run):
        return run(Pool(workers, lengths, choices), workers, depth, itertools.repeat(None), in_order)

    ours = epoch(epoch_of_ours)
    assert ours == epoch(epoch_of_torch)
    assert sum(entry[0] == "deliver" for entry in ours) == sum(lengths)


# ---- what must always hold ----------------------------------------------------------------------


class SchedulerMachine(RuleBasedStateMachine):
    """Answers, ends of data and losses in any order; tickets are drawn as the runtime draws them."""

    @initialize(workers=st.integers(1, 4), depth=st.integers(1, 3), in_order=st.booleans())
    def begin(self, workers, depth, in_order):
        self.workers, self.depth, self.in_order = workers, depth, in_order
        self.scheduler = Scheduler(workers, depth, in_order=in_order)
        self.out = {}  # number to (worker, attempt), not answered
        self.filled, self.delivered, self.void = set(), [], []
        self.stale = []
        self.planned = 0
        for _ in range(workers * depth):
            self.plan()

    def plan(self):
        planned = self.scheduler.plan(self.planned)
        if planned is None:
            return
        number, worker = planned
        assert number == self.planned
        assert self.scheduler.is_active(worker)
        assert self.scheduler.ledger.assign(number)[0].indices == number
        self.planned += 1
        self.out[number] = (worker, 0)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def answer(self, data):
        number = data.draw(st.sampled_from(sorted(self.out)))
        _, attempt = self.out.pop(number)
        assert self.scheduler.fill(number, attempt)
        assert not self.scheduler.fill(number, attempt)
        self.filled.add(number)

    @rule()
    def take(self):
        number = self.scheduler.next_ready()
        if number is None:
            assert not self.filled or self.in_order
            return
        assert number in self.filled
        self.scheduler.deliver(number)
        self.filled.discard(number)
        self.delivered.append(number)
        self.plan()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def run_out_of_data(self, data):
        # A worker tells of its end when it should answer a ticket.
        worker = data.draw(st.sampled_from(sorted({owner for owner, _ in self.out.values()})))
        lost = [number for number, (owner, _) in self.out.items() if owner == worker]
        assert sorted(self.scheduler.exhaust(worker)) == sorted(lost)
        for number in lost:
            self.stale.append((number, self.out.pop(number)[1]))
        self.void += lost
        self.plan()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def lose_a_worker(self, data):
        worker = data.draw(st.sampled_from(sorted({owner for owner, _ in self.out.values()})))
        lost = sorted(number for number, (owner, _) in self.out.items() if owner == worker)
        assert self.scheduler.lose(worker) == lost
        for number in lost:
            self.stale.append((number, self.out[number][1]))
            _, attempt = self.scheduler.ledger.assign(number)
            self.out[number] = (worker, attempt)

    @precondition(lambda self: self.stale)
    @rule()
    def late_answer(self):
        assert not self.scheduler.fill(*self.stale.pop())

    @invariant()
    def every_ticket_is_somewhere_once(self):
        if not hasattr(self, "scheduler"):
            return
        places = [*self.out, *self.filled, *self.delivered, *self.void]
        assert sorted(places) == list(range(self.planned))
        assert self.scheduler.outstanding == len(self.out) + len(self.filled)

    @invariant()
    def numbers_rise_in_order(self):
        if hasattr(self, "scheduler") and self.in_order:
            assert self.delivered == sorted(self.delivered)

    @invariant()
    def no_worker_has_more_than_its_share(self):
        if not hasattr(self, "scheduler"):
            return
        held = [self.scheduler.owner(number) for number in (*self.out, *self.filled)]
        assert len(held) <= self.workers * self.depth
        active = sum(map(self.scheduler.is_active, range(self.workers)))
        # The tickets of workers that have run out of data go to the others, as in torch.
        share = self.workers * self.depth // max(1, active)
        if active == self.workers or not self.in_order:
            assert all(held.count(worker) <= share for worker in range(self.workers))

    @invariant()
    def tickets_of_a_worker_are_those_it_has(self):
        if hasattr(self, "scheduler"):
            for worker in range(self.workers):
                mine = [number for number, (owner, _) in self.out.items() if owner == worker]
                assert sorted(self.scheduler.tickets_of(worker)) == sorted(mine)

    def teardown(self):
        """Whatever has happened, the epoch can be brought to its end."""
        if not hasattr(self, "scheduler"):
            return
        for worker in range(self.workers):
            self.scheduler.exhaust(worker)
        while (number := self.scheduler.next_ready()) is not None:
            self.scheduler.deliver(number)
        assert self.scheduler.outstanding == 0


TestScheduler = SchedulerMachine.TestCase
