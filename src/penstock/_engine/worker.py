"""The worker: take a ticket, fetch, fill a slab, announce it.

    wait for Assign ──▶ fetch ──▶ collate (into the slab) ──▶ encode ──▶ Filled
                          │           │                         │
                          └───────────┴── any exception ────────┴─────▶ Failed, with the sample's index

Guarantees:

* Everything happens in the worker's main thread; it starts no thread of its own.
* Every ticket is answered: with the batch, with an exception, or with the end of an iterable dataset.
* Seeds, `get_worker_info()` and the order of calls into user code are torch's.

Runs in a process forked from the zygote.
"""

from __future__ import annotations

import random
import traceback
from typing import Any

import numpy as np
import torch
import torch.utils.data._utils as torch_utils
from torch.utils.data import IterDataPipe
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.worker import WorkerInfo
from torch.utils.data.dataloader import _DatasetKind
from torch.utils.data.graph_settings import apply_random_seed

from penstock._arena import codec
from penstock._arena.segment import Segment
from penstock._arena.slab import SlabWriter
from penstock._base import libc
from penstock._engine import black_box, failure, resume, rng_objects, stale
from penstock._engine.black_box import BlackBox
from penstock._engine.channel import Channel, ChannelClosed
from penstock._engine.collate import collate_into
from penstock._engine.events import EMPTY
from penstock._engine.fetch import Fetcher
from penstock._engine.job import Job
from penstock._engine.messages import (
    Assign,
    Exhausted,
    Failed,
    Filled,
    Retired,
    Rewind,
    Rewound,
    Signs,
    Spawn,
    Verdict,
)
from penstock._engine.resume import Resume
from penstock._engine.retire import Scale
from penstock._engine.rows import Rows
from penstock._engine.seeding import SampleSeeder
from penstock._engine.watch import Watch
from penstock.errors import DataError, PenstockError

# A successor draws other random numbers than its predecessor did. Workers are fewer than this, the seeds of
# epochs are random, and torch's generator takes the low 32 bits of a seed alone.
LIFE_STEP = 1 << 20


def work(job: Job, order: Spawn, channel: Channel, box: BlackBox | None = None) -> None:
    """Answer tickets until told to stop or until the consumer is gone."""
    libc.name_process("pt_data_worker")  # what torch calls its own: tools look for it
    Worker(job, order, channel, box).serve()


class Worker:
    """One worker's state: its dataset, its random numbers, its slabs."""

    def __init__(self, job: Job, order: Spawn, channel: Channel, box: BlackBox | None = None) -> None:
        self._job = job
        self._id = order.worker
        self._life = order.life
        self._channel = channel
        self._box = box or BlackBox()
        self._writer = SlabWriter()
        self._rows = Rows(self._writer)
        self._encoder = codec.cloud_encoder() if job.birth == "clean" else codec.Encoder
        self._dataset = job.dataset
        self._shared_rng = torch.Generator()
        self._fetcher: Fetcher | None = None
        self._seeder: SampleSeeder | None = None
        self._start_failure: failure.Failure | None = None
        self._has_ended = False
        # A stream would be lost with its worker.
        is_stream = job.kind == _DatasetKind.Iterable
        self._scale = None if is_stream else Scale(job.max_worker_memory, job.workers)
        self._resume = None if order.resume is None else Resume(*order.resume)
        self._has_state = False
        self._watch: Watch | None = None
        self._reseeded: frozenset[str] = frozenset()  # paths of generators
        # With cure=True an iterable dataset is looked at before it is delivered.
        self._is_judged = (
            job.cure and job.kind == _DatasetKind.Iterable and job.workers > 1 and job.is_watched
        )
        self._waiting: list[tuple[Assign, list[int]]] | None = None  # tickets, until there is a verdict

    def serve(self) -> None:
        """The worker's life."""
        self._start()
        self._box.phase(black_box.IDLE)
        while True:
            try:
                parcel = self._channel.wait_message()
                self._obey(parcel.message, parcel.fds)
            except ChannelClosed:
                return  # the consumer hung up: that is how workers are told to end

    def _obey(self, message: Any, fds: list[int]) -> None:
        if isinstance(message, Rewind):
            self._rewind(message)
        elif isinstance(message, Verdict):
            self._go_on(is_sharded=message.is_sharded)
        elif self._waiting is not None:
            self._waiting.append((message, fds))
        else:
            assert isinstance(message, Assign), message
            self._answer(message, fds)

    # ---- start ----------------------------------------------------------------------------------

    def _start(self) -> None:
        self._box.phase(black_box.STARTING)
        signals: Any = torch_utils.signal_handling
        self._box.disarm()
        signals._set_worker_signal_handlers()  # noqa: SLF001 - says "bus error" in words
        self._box.arm()
        torch.set_num_threads(1)
        seed = seed_worker(self._job.base_seed + self._life * LIFE_STEP, self._id)
        self._seed_pipes(self._job.shared_seed)
        torch_utils.worker._worker_info = WorkerInfo(  # noqa: SLF001 - what get_worker_info() returns
            id=self._id, num_workers=self._job.workers, seed=seed, dataset=self._dataset
        )
        collate_into(self._writer, self._rows)
        try:
            self._initialise()
            if self._resume is not None:
                resume.load(self._dataset, self._resume)
            self._begin_epoch(self._job.epoch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the first ticket carries it home
            self._start_failure = self._describe(error)
        self._begin_samples()

    def _initialise(self) -> None:
        """Call the user's `worker_init_fn`, which may seed generators again that cure=True has seeded."""
        is_cured = self._job.is_watched and self._job.cure and self._job.kind == _DatasetKind.Map
        found = rng_objects.find(self._dataset) if is_cured else []
        states = rng_objects.reseed(found, self._job.base_seed, self._id)
        if self._job.init_fn is not None:
            self._job.init_fn(self._id)
        if found:
            self._reseeded = rng_objects.untouched(self._dataset, found, states)

    def _rewind(self, message: Rewind) -> None:
        self._go_on(is_sharded=None)
        self._has_ended = False
        self._channel.send(Rewound(self._id))
        self._box.phase(black_box.STARTING)
        self._seed_pipes(message.shared_seed)
        self._fetcher = None
        try:
            stale.apply(self._dataset, message.attributes)
            self._begin_epoch(message.epoch)
        except Exception as error:  # noqa: BLE001 - as in _start
            self._start_failure = self._describe(error)
        self._begin_samples()

    # ---- the first samples of an epoch ----------------------------------------------------------

    def _begin_samples(self) -> None:
        self._watch = None
        is_iterable = self._job.kind == _DatasetKind.Iterable
        self._has_state = self._job.is_watched and is_iterable and resume.has_state(self._dataset)
        if self._resume is not None:
            self._take_up(self._resume)
            self._resume = None
        elif self._job.is_watched:
            found = rng_objects.find(self._dataset)
            rngs = rng_objects.RngWatch(found, self._reseeded) if found else None
            if is_iterable or rngs is not None:
                self._watch = Watch(rngs, is_iterable=is_iterable)
                self._begin_watch()

    def _begin_watch(self) -> None:
        watch, fetcher = self._watch, self._fetcher
        assert watch is not None
        if not self._is_judged:
            if fetcher is not None:
                fetcher.watch(watch)
            return
        if fetcher is not None:
            fetcher.look_ahead(watch)
        self._waiting = []
        self._tell()

    def _tell(self) -> None:
        """Tell what was seen of the first samples; there is nothing more to see in this epoch."""
        assert self._watch is not None
        prefix, rngs = self._watch.signs()
        self._channel.send(Signs(self._id, prefix, tuple(map(tuple, rngs))))
        self._watch = None
        if self._fetcher is not None:
            self._fetcher.unwatch()

    def _go_on(self, *, is_sharded: bool | None) -> None:
        """Answer the tickets that waited for a verdict; None: the epoch is over before there was one."""
        waiting, self._waiting = self._waiting, None
        if is_sharded and self._fetcher is not None:
            self._fetcher.shard(self._id, self._job.workers)
        self._has_ended |= is_sharded is None
        for ticket, fds in waiting or ():
            self._answer(ticket, fds)

    def _take_up(self, at: Resume) -> None:
        """Go on where a lost worker was."""
        fetcher, workers = self._fetcher, self._job.workers
        if fetcher is None:
            return
        if at.is_sharded:
            # A state was taken behind this worker's last sample: the others' next ones come first.
            fetcher.shard(self._id if at.state is None else workers - 1, workers)
        for _ in range(at.tickets):
            fetcher.skip(at.indices)

    def _begin_epoch(self, epoch: int) -> None:
        if self._job.seed is not None:
            if self._seeder is None:
                self._seeder = SampleSeeder(self._job.seed, self._dataset)
            self._seeder.begin_epoch(epoch)
            if self._job.kind == _DatasetKind.Iterable:
                self._seeder.seed_stream(self._id)
        self._fetcher = Fetcher(self._job, self._dataset, self._rows, self._seeder, self._box)
        self._box.phase(black_box.IDLE)

    def _seed_pipes(self, shared_seed: int | None) -> None:
        if isinstance(self._dataset, IterDataPipe):
            assert shared_seed is not None
            self._shared_rng.manual_seed(shared_seed)
            self._dataset = apply_random_seed(self._dataset, self._shared_rng)

    # ---- tickets --------------------------------------------------------------------------------

    def _answer(self, ticket: Assign, fds: list[int]) -> None:
        writer = self._writer
        for slab in ticket.given_up:
            writer.forget(slab)
        if fds:
            writer.learn(ticket.slab, fds[0], ticket.nbytes)
        if self._has_ended:
            # The consumer counts this ticket as void, but wants its slab back.
            self._channel.send(Exhausted(self._id, ticket.number, ticket.attempt, ticket.slab, ticket.nbytes))
            return
        self._box.begin(ticket.number, ticket.attempt)
        try:
            writer.begin(ticket.slab, ticket.nbytes, ticket.expected)
            answer = self._fill(ticket)
        except Exception as error:  # noqa: BLE001 - every exception goes home
            note = self._fetcher.where() if self._fetcher is not None else ""
            told = self._describe(error, note)
            traceback.clear_frames(error.__traceback__)  # they hold samples, and with them the slab
            answer = self._fail(ticket, told)
        if self._watch is not None and self._watch.is_done:
            self._tell()
        self._channel.send(answer)
        self._box.end()
        if self._scale is not None and self._scale.is_due():
            self._channel.send(Retired(self._id))
            raise ChannelClosed  # as if the consumer had hung up

    def _fill(self, ticket: Assign) -> Any:
        fetcher = self._fetcher
        if self._start_failure is not None or fetcher is None:
            told, self._start_failure = self._start_failure, None
            return self._fail(ticket, told)
        try:
            batch = fetcher.fetch(ticket.indices, ticket.condemned, is_again=ticket.attempt > 0)
        except StopIteration:
            if self._job.kind != _DatasetKind.Iterable:
                raise
            self._has_ended = True
            self._writer.finish()
            return Exhausted(self._id, ticket.number, ticket.attempt, ticket.slab, self._writer.nbytes)
        self._box.phase(black_box.HANDING_OVER)
        place = None if batch is EMPTY else tuple(self._encode(batch, ticket))
        del batch
        fetcher.forget()
        nbytes = self._writer.nbytes
        is_kept = self._writer.finish()
        state = self._state() if self._has_state else None
        return Filled(
            self._id, ticket.number, ticket.attempt, ticket.slab, nbytes, is_kept, place, fetcher.bad, state
        )

    def _state(self) -> bytes | None:
        """Where the stream is; None when it was looked ahead, or cannot tell, and then is not asked again."""
        assert self._fetcher is not None
        if self._fetcher.is_ahead:
            return None
        state = resume.state_of(self._dataset)
        self._has_state = state is not None
        return state

    def _encode(self, batch: Any, ticket: Assign) -> codec.Place:
        try:
            return codec.encode(batch, self._writer, self._encoder)
        except (MemoryError, PenstockError):
            raise  # not the batch's fault, or already in words
        except Exception as error:
            from penstock._engine.unpicklable import find_unpicklable

            path, reason = find_unpicklable(batch, "batch")
            raise DataError(
                "PS501",
                f"worker {self._id} made a batch that cannot be handed over: `{path}` {reason}",
                why=f"the batch is of sample indices {ticket.indices!r}; {type(error).__name__}: {error}",
                fix="return plain data from the dataset and the collate function",
            ) from error

    def _describe(self, error: Exception, note: str = "") -> failure.Failure:
        return failure.describe(error, self._id, note, is_clean=self._job.birth == "clean")

    def _fail(self, ticket: Assign, told: failure.Failure | None) -> Failed:
        if told is None:
            told = failure.describe(RuntimeError("the worker could not be started"), self._id)
        bad: tuple[Any, ...] = ()
        if self._fetcher is not None:
            bad = self._fetcher.bad
            self._fetcher.forget()
        nbytes = self._writer.nbytes
        is_kept = self._writer.finish()
        return Failed(self._id, ticket.number, ticket.attempt, ticket.slab, nbytes, is_kept, tuple(told), bad)


def warm_up() -> None:
    """Do once, in the zygote, what every worker would do for the first time.

    Lazy imports and caches then lie on pages that all workers share, and a worker starts sooner.
    """
    seed_worker(0, 0)
    segment = Segment.create()
    writer = SlabWriter()
    writer.learn(0, segment.fd, 0)
    writer.begin(0, 0, 0)
    codec.encode([torch.stack([torch.zeros(2)] * 2), np.zeros(2), torch.tensor([1])], writer)
    writer.finish()
    writer.close()


def seed_worker(base_seed: int, worker: int) -> int:
    """Seed the global generators as torch does for this worker; return its seed."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    generate_state: Any = torch_worker._generate_state  # noqa: SLF001 - numpy's seed must be torch's
    np.random.seed(generate_state(base_seed, worker))
    return seed
