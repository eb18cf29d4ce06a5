"""The consumer's side of worker processes, with zygote and workers played by the test."""

from __future__ import annotations

import os
import signal
import socket

import pytest
import torch

from penstock._arena import codec
from penstock._arena.arena import COPY_BELOW, Arena
from penstock._arena.slab import SlabWriter
from penstock._engine import events, failure
from penstock._engine.backends import process
from penstock._engine.backends.birth import ZygoteHandle
from penstock._engine.backends.process import Payload, ProcessBackend
from penstock._engine.black_box import ASK, TEXT, BlackBox
from penstock._engine.channel import Channel, pair
from penstock._engine.messages import (
    Assign,
    Born,
    Exhausted,
    Failed,
    Filled,
    Kill,
    Lost,
    Rewind,
    Rewound,
    Spawn,
)
from penstock.errors import ArenaError, DataError


class FakeWorker:
    """A worker's end: takes tickets, fills slabs, all when the test says so."""

    def __init__(self, number, fd):
        self.number = number
        self.channel = Channel(socket.socket(fileno=fd))
        self.writer = SlabWriter()
        self.fds = []  # how many descriptors came with each ticket

    def tickets(self):
        got = []
        for message, fds in self.channel.receive_nowait():
            if isinstance(message, Assign):
                self.fds.append(len(fds))
                for slab in message.given_up:
                    self.writer.forget(slab)
                if fds:
                    self.writer.learn(message.slab, fds[0], message.nbytes)
            got.append(message)
        return got

    def fill(self, ticket, batch, is_kept=False):
        self.writer.begin(ticket.slab, ticket.nbytes, ticket.expected)
        place = tuple(codec.encode(batch, self.writer))
        nbytes = self.writer.nbytes
        self.writer.finish()
        self.channel.send(
            Filled(self.number, ticket.number, ticket.attempt, ticket.slab, nbytes, is_kept, place)
        )

    def fail(self, ticket, error):
        told = tuple(failure.describe(error, self.number))
        self.channel.send(Failed(self.number, ticket.number, ticket.attempt, ticket.slab, 0, False, told))

    def close(self):
        self.channel.close()
        self.writer.close()


class Stage:
    """A backend with everybody that it talks to."""

    def __init__(self, workers=1, budget=1 << 40):
        here, there = pair()
        self.zygote = Channel(there)
        self.arena = Arena(budget)
        self.backend = ProcessBackend(ZygoteHandle(Channel(here), 1, is_child=False), workers, self.arena)
        parcels = self.zygote_parcels(workers)
        self.spawned = [parcel.message for parcel in parcels]
        self.workers = [FakeWorker(parcel.message.worker, parcel.fds[0]) for parcel in parcels]
        self.boxes = [BlackBox.open(parcel.fds[1]) for parcel in parcels]
        for worker in range(workers):
            self.zygote.send(Born(worker, 1000 + worker))

    def zygote_parcels(self, count):
        got = []
        while len(got) < count:
            got += self.zygote.receive_nowait()
        return got

    def ask(self, number, worker=0, attempt=0):
        """Send a ticket; return it as the worker got it."""
        assert self.backend.send(worker, number, attempt, [number])
        return self.workers[worker].tickets()[-1]

    def hear(self):
        return self.backend.wait(0.001)

    def make(self, number, batch, worker=0, **options):
        """A batch from ticket to answer."""
        self.workers[worker].fill(self.ask(number, worker), batch, **options)
        (event,) = self.hear()
        return event

    def close(self):
        for each in (*self.workers, *self.boxes):
            each.close()
        for channel in self.backend.channels.values():
            channel.close()
        self.backend.zygote.leave()
        self.zygote.close()
        self.arena.close()


@pytest.fixture
def stage():
    """Stages, cleared at the end."""
    made = []

    def build(**options):
        made.append(Stage(**options))
        return made[-1]

    yield build
    for each in made:
        each.close()


# ---- tickets out --------------------------------------------------------------------------------


def test_every_worker_is_asked_for(stage):
    assert stage(workers=3).spawned == [Spawn(0), Spawn(1), Spawn(2)]


def test_a_ticket_goes_to_its_worker_with_a_slab(stage):
    one = stage(workers=2)
    ticket = one.ask(7, worker=1, attempt=3)
    assert ticket == Assign(7, 3, [7], 0, 0, 0, ())
    assert one.workers[1].fds == [1]
    assert one.workers[0].tickets() == []


def test_a_descriptor_goes_to_a_worker_once(stage):
    one = stage()
    for number in range(3):
        one.backend.open(one.make(number, "small").payload)
    assert one.workers[0].fds == [1, 0, 0]


def test_a_slab_that_another_worker_filled_comes_with_its_descriptor(stage):
    one = stage(workers=2)
    one.backend.open(one.make(0, "small", worker=0).payload)
    ticket = one.ask(1, worker=1)
    assert ticket.slab == 0
    assert ticket.nbytes > 0
    assert one.workers[1].fds == [1]


def test_without_room_no_ticket_goes_out(stage):
    one = stage(budget=1)
    one.backend.open(one.make(0, torch.zeros(COPY_BELOW)).payload)
    assert one.backend.send(0, 1, 0, [1]) is True
    assert one.backend.send(0, 2, 0, [2]) is False


def test_a_worker_is_told_what_to_expect(stage):
    one = stage()
    event = one.make(0, torch.zeros(COPY_BELOW))
    one.backend.open(event.payload)
    assert one.ask(1).expected == event.payload.place.end


def test_a_ticket_for_a_worker_that_is_gone_is_dropped(stage):
    one = stage()
    one.workers[0].close()
    assert one.backend.send(0, 0, 0, [0]) is True
    one.hear()
    assert one.backend.send(0, 1, 0, [1]) is True


def test_a_ticket_larger_than_the_socket_goes_out_bit_by_bit(stage):
    one = stage()
    indices = list(range(500_000))
    one.backend.send(0, 0, 0, indices)
    assert one.backend.channels[0].has_outbox
    tickets = []
    while not tickets:
        one.hear()
        tickets = one.workers[0].tickets()
    assert tickets[0].indices == indices


# ---- answers home -------------------------------------------------------------------------------


def test_an_answer_is_an_event(stage):
    one = stage(workers=2)
    event = one.make(5, "x", worker=1)
    assert type(event) is events.Answered
    assert event[:3] == (1, 5, 0)


@pytest.mark.parametrize("numel", [3, COPY_BELOW])
def test_an_answer_opens_as_its_batch(stage, numel):
    one = stage()
    batch = one.backend.open(one.make(0, {"x": torch.arange(numel)}).payload)
    assert torch.equal(batch["x"], torch.arange(numel))


def test_a_large_batch_is_a_view_of_its_slab(stage):
    one = stage()
    batch = one.backend.open(one.make(0, torch.zeros(COPY_BELOW)).payload)
    assert one.arena.held == 1
    del batch
    assert one.arena.held == 0


def test_a_small_batch_is_a_copy(stage):
    one = stage()
    batch = one.backend.open(one.make(0, torch.zeros(3)).payload)
    one.make(1, torch.ones(3))
    assert batch.tolist() == [0, 0, 0]


def test_a_workers_exception_is_raised(stage):
    one = stage()
    one.workers[0].fail(one.ask(0), ValueError("bad"))
    (event,) = one.hear()
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker process 0"):
        one.backend.open(event.payload)


def test_the_slab_of_an_exception_goes_out_again(stage):
    one = stage()
    one.workers[0].fail(one.ask(0), ValueError("bad"))
    (event,) = one.hear()
    with pytest.raises(ValueError, match="bad"):
        one.backend.open(event.payload)
    assert one.ask(1).slab == 0


class Unfriendly:
    def __reduce__(self):
        return int, ("no number",)


def test_a_batch_that_cannot_be_rebuilt_is_an_error(stage):
    one = stage()
    event = one.make(0, Unfriendly())
    with pytest.raises(DataError) as caught:
        one.backend.open(event.payload)
    assert str(caught.value) == (
        "[PS504] a batch arrived but could not be rebuilt in the training process\n"
        "  why:  ValueError: invalid literal for int() with base 10: 'no number'\n"
        "  fix:  make `pickle.loads(pickle.dumps(batch))` work for what the dataset returns\n"
        "  more: penstock explain PS504"
    )
    assert one.ask(1).slab == 0


def test_a_discarded_answer_gives_its_slab_back(stage):
    one = stage()
    one.backend.discard(one.make(0, "x").payload)
    assert one.ask(1).slab == 0


def test_a_kept_slab_is_given_up_and_forgotten_by_every_worker(stage):
    one = stage(workers=2)
    one.backend.open(one.make(0, "x", is_kept=True).payload)
    assert one.ask(1, worker=0)[3:7] == (1, 0, one.arena.expected, (0,))
    assert one.ask(2, worker=1).given_up == (0,)
    assert one.ask(3, worker=1).given_up == ()


def test_the_end_of_an_iterable_dataset_is_an_event(stage):
    one = stage()
    ticket = one.ask(0)
    one.workers[0].channel.send(Exhausted(0, 0, 0, ticket.slab, 0))
    assert one.hear() == [events.Exhausted(0)]
    assert one.ask(1).slab == ticket.slab


def test_the_end_of_an_iterable_dataset_is_one_event_however_many_tickets_were_out(stage):
    one = stage()
    tickets = [one.ask(number) for number in range(3)]
    for ticket in tickets:
        one.workers[0].channel.send(Exhausted(0, ticket.number, 0, ticket.slab, 0))
    assert one.hear() == [events.Exhausted(0)]
    assert one.backend._slabs == {}
    assert len(one.arena._free) == 3


def test_a_late_end_of_one_epoch_does_not_hide_the_end_of_the_next(stage):
    one = stage()
    first, late = one.ask(0), one.ask(1)
    worker = one.workers[0].channel
    worker.send(Exhausted(0, 0, 0, first.slab, 0))
    one.hear()
    one.backend.rewind(None)
    worker.send(Exhausted(0, 1, 0, late.slab, 0))  # its epoch is over for the consumer
    worker.send(Rewound(0))
    assert events.Rewound(0) in one.hear()
    again = one.ask(0)
    worker.send(Exhausted(0, 0, 0, again.slab, 0))
    assert one.hear() == [events.Exhausted(0)]


def test_a_rewind_goes_to_every_worker_and_comes_back(stage):
    one = stage(workers=2)
    one.backend.rewind(5)
    for worker in one.workers:
        assert worker.tickets() == [Rewind(5)]
        worker.channel.send(Rewound(worker.number))
    assert sorted(one.hear()) == [events.Rewound(0), events.Rewound(1)]


def test_nothing_is_heard_when_nothing_happened(stage):
    assert stage().hear() == []


# ---- deaths -------------------------------------------------------------------------------------


def test_a_death_is_heard_after_all_that_the_dead_had_sent(stage):
    one = stage()
    one.workers[0].fill(one.ask(0), "last words")
    one.workers[0].close()
    one.zygote.send(Lost(0, 1000, -9))
    heard = one.hear()
    assert [type(event) for event in heard] == [events.Answered, events.WorkerLost]
    assert heard[1] == events.WorkerLost(0, 1000, -9)
    assert one.backend.open(heard[0].payload) == "last words"


def test_a_zygote_that_is_gone_takes_its_workers_along(stage):
    one = stage(workers=2)
    one.hear()
    one.zygote.close()
    assert one.hear() == [
        events.WorkerLost(0, 1000, -signal.SIGKILL),
        events.WorkerLost(1, 1001, -signal.SIGKILL),
    ]
    assert one.backend.listen(0) is False


def test_a_zygote_that_is_gone_is_noticed_when_it_is_told_something(stage):
    one = stage()
    one.hear()
    one.zygote.close()
    one.backend.command(Kill(0, 9))
    assert one.hear() == [events.WorkerLost(0, 1000, -signal.SIGKILL)]
    one.backend.command(Kill(0, 9))


def test_a_zygote_that_is_gone_at_once_is_heard_of():
    here, there = pair()
    there.close()
    arena = Arena(1)
    backend = ProcessBackend(ZygoteHandle(Channel(here), 1, is_child=False), 1, arena)
    assert backend.wait(0) == [events.WorkerLost(0, 0, -signal.SIGKILL)]
    backend.channels[0].close()
    arena.close()


# ---- workers as torch's users know them ---------------------------------------------------------


def test_a_worker_has_a_pid_once_it_is_born(stage):
    assert stage(workers=2).backend.processes[1].pid == 1001


def test_a_worker_is_alive_until_it_is_lost(stage):
    one = stage()
    worker = one.backend.processes[0]
    assert worker.is_alive()
    one.zygote.send(Lost(0, 1000, 3))
    assert worker.exitcode == 3
    assert not worker.is_alive()
    worker.join()


def test_joining_a_worker_ends_at_its_time(stage):
    stage().backend.processes[0].join(timeout=0)


@pytest.mark.parametrize(("method", "number"), [("terminate", signal.SIGTERM), ("kill", signal.SIGKILL)])
def test_a_worker_can_be_ended(stage, method, number):
    one = stage()
    getattr(one.backend.processes[0], method)()
    (parcel,) = one.zygote_parcels(1)
    assert parcel.message == Kill(0, number)


def test_a_worker_that_has_ended_is_not_ended_again(stage):
    one = stage()
    one.zygote.send(Lost(0, 1000, 0))
    one.hear()
    one.backend.processes[0].kill()
    assert one.zygote.receive_nowait() == []


def test_a_worker_says_what_it_is(stage):
    one = stage()
    worker = one.backend.processes[0]
    assert worker.ident == 1000
    assert repr(worker) == "<penstock-worker-0 pid=1000 running>"
    one.zygote.send(Lost(0, 1000, -9))
    one.hear()
    assert repr(worker) == "<penstock-worker-0 pid=1000 exited -9>"


def test_a_worker_whose_backend_is_gone_stays_as_it_was():
    here, there = pair()
    arena = Arena(1)
    backend = ProcessBackend(ZygoteHandle(Channel(here), 1, is_child=False), 0, arena)
    worker = process.WorkerProcess(backend, 0)
    backend.zygote.leave()
    there.close()
    arena.close()
    del backend
    assert (worker.pid, worker.exitcode) == (None, None)
    worker.join()
    worker.kill()


# ---- the end ------------------------------------------------------------------------------------


def test_reclaiming_takes_back_every_slab(stage):
    one = stage()
    one.make(0, "answered")  # heard and never opened
    one.workers[0].fill(one.ask(1), "answered, not heard")
    one.ask(2)
    one.backend.listen(0.001)
    one.backend.on_close = lambda: None
    one.backend.reclaim()
    assert one.backend._slabs == {}
    assert len(one.arena._free) == 2


def test_reclaiming_closes_the_arena(stage):
    one = stage()
    one.ask(0)
    one.backend.reclaim()
    assert one.arena.nbytes == 0


def test_in_a_fork_nobody_is_listened_to(stage):
    one = stage()
    one.backend._owner = os.getpid() + 1
    assert one.backend.listen(0) is False


def test_in_a_fork_the_channels_are_closed(stage, monkeypatch):
    one = stage()
    monkeypatch.setattr(process, "_backends", {one.backend})
    process._leave_to_parent()
    assert one.backend.zygote.channel.fileno() == -1
    assert one.backend.channels[0].fileno() == -1


def test_a_payload_has_a_place_or_a_failure(stage):
    payload = stage().make(0, "x").payload
    assert type(payload) is Payload
    assert payload.failure is None
    assert payload.place is not None


# ---- black boxes --------------------------------------------------------------------------------


def test_a_death_is_told_with_what_the_black_box_says(stage):
    one = stage()
    one.boxes[0].begin(7, 1)
    one.boxes[0].at(2, 40)
    os.pwrite(one.boxes[0].fd, b"Fatal", TEXT)
    one.zygote.send(Lost(0, 1000, -signal.SIGSEGV))
    lost = one.hear()[-1]
    assert lost == events.WorkerLost(0, 1000, -signal.SIGSEGV, 7, 1, 2, 40, "fetching", "Fatal")
    assert (lost.position, lost.index) == (2, 40)


def test_a_worker_that_we_kill_is_lost_with_the_reason(stage):
    one = stage()
    one.backend.kill(0, "stalled")
    assert one.zygote_parcels(1)[0].message == Kill(0, signal.SIGKILL)
    one.zygote.send(Lost(0, 1000, -signal.SIGKILL))
    assert one.hear()[-1].reason == "stalled"


def test_a_kill_by_the_kernel_is_told_by_its_counter(stage, monkeypatch):
    kills = 5
    monkeypatch.setattr(process.host, "oom_kills", lambda: kills)
    one = stage(workers=3)
    kills = 6
    one.zygote.send(Lost(0, 1000, -signal.SIGSEGV))
    one.zygote.send(Lost(1, 1001, -signal.SIGKILL))
    one.zygote.send(Lost(2, 1002, -signal.SIGKILL))
    assert [event.was_oom for event in one.hear()] == [False, True, False]


def test_a_worker_is_observed_with_its_place(stage):
    one = stage()
    assert one.backend.observe(0) is None  # its pid is not known yet
    one.hear()
    one.backend.processes[0]._pid = os.getpid()
    one.boxes[0].begin(7, 1)
    one.boxes[0].at(2, 40)
    seen = one.backend.observe(0)
    assert (seen.pid, seen.progress) == (os.getpid(), (7, 1, "fetching", 2))
    assert one.backend.report(0).index == 40


def test_a_stack_is_asked_for_by_the_signal_that_the_worker_takes(stage, monkeypatch):
    one = stage()
    assert one.backend.ask_stack(0) == ""  # it takes none yet
    one.boxes[0]._words[6] = ASK
    os.pwrite(one.boxes[0].fd, b"old\n", TEXT)

    def write(_):
        if not one.zygote.receive_nowait():
            return
        os.pwrite(one.boxes[0].fd, b"new\n", TEXT + 4)

    monkeypatch.setattr(process.time, "sleep", write)
    assert one.backend.ask_stack(0) == "new"


def test_a_worker_that_does_not_answer_is_not_waited_for(stage, monkeypatch):
    monkeypatch.setattr(process, "STACK_LIMIT_S", 0.02)
    one = stage()
    one.boxes[0]._words[6] = ASK
    assert one.backend.ask_stack(0) == ""
    assert one.zygote_parcels(1)[0].message == Kill(0, ASK)


def test_without_memory_for_a_box_there_are_workers_all_the_same(monkeypatch):
    def refuse():
        raise ArenaError("PS702")

    monkeypatch.setattr(BlackBox, "create", refuse)
    here, there = pair()
    zygote, arena = Channel(there), Arena(1 << 40)
    backend = ProcessBackend(ZygoteHandle(Channel(here), 1, is_child=False), 1, arena)
    (parcel,) = zygote.receive_nowait()
    assert len(parcel.fds) == 1
    os.close(parcel.fds[0])
    assert backend.observe(0) is None
    assert backend.report(0).phase == ""
    assert backend.ask_stack(0) == ""
    zygote.send(Lost(0, 1000, 3))
    assert backend.wait(0.001)[-1] == events.WorkerLost(0, 1000, 3)
    backend.zygote.leave()
    zygote.close()
    arena.close()
