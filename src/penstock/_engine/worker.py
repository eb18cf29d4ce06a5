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
from penstock._engine import black_box, failure
from penstock._engine.black_box import BlackBox
from penstock._engine.channel import Channel, ChannelClosed
from penstock._engine.collate import collate_into
from penstock._engine.fetch import Fetcher
from penstock._engine.job import Job
from penstock._engine.messages import Assign, Exhausted, Failed, Filled, Rewind, Rewound
from penstock._engine.rows import Rows
from penstock.errors import DataError, PenstockError


def work(job: Job, worker: int, channel: Channel, box: BlackBox | None = None) -> None:
    """Answer tickets until told to stop or until the consumer is gone."""
    libc.name_process("pt_data_worker")  # what torch calls its own: tools look for it
    Worker(job, worker, channel, box).serve()


class Worker:
    """One worker's state: its dataset, its random numbers, its slabs."""

    def __init__(self, job: Job, worker: int, channel: Channel, box: BlackBox | None = None) -> None:
        self._job = job
        self._id = worker
        self._channel = channel
        self._box = box or BlackBox()
        self._writer = SlabWriter()
        self._rows = Rows(self._writer)
        self._encoder = codec.cloud_encoder() if job.birth == "clean" else codec.Encoder
        self._dataset = job.dataset
        self._shared_rng = torch.Generator()
        self._fetcher: Fetcher | None = None
        self._start_failure: failure.Failure | None = None
        self._has_ended = False

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
        seed = seed_worker(self._job.base_seed, self._id)
        self._seed_pipes(self._job.shared_seed)
        torch_utils.worker._worker_info = WorkerInfo(  # noqa: SLF001 - what get_worker_info() returns
            id=self._id, num_workers=self._job.workers, seed=seed, dataset=self._dataset
        )
        collate_into(self._writer, self._rows)
        try:
            if self._job.init_fn is not None:
                self._job.init_fn(self._id)
            self._fetcher = Fetcher(self._job, self._dataset, self._rows, self._box)
        except Exception as error:  # noqa: BLE001 - whatever it is, the first ticket carries it home
            self._start_failure = self._describe(error)

    def _rewind(self, message: Rewind) -> None:
        self._has_ended = False
        self._channel.send(Rewound(self._id))
        self._box.phase(black_box.STARTING)
        self._seed_pipes(message.shared_seed)
        self._fetcher = None
        try:
            self._fetcher = Fetcher(self._job, self._dataset, self._rows, self._box)
        except Exception as error:  # noqa: BLE001 - as in _start
            self._start_failure = self._describe(error)
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
        self._channel.send(answer)
        self._box.end()

    def _fill(self, ticket: Assign) -> Any:
        fetcher = self._fetcher
        if self._start_failure is not None or fetcher is None:
            told, self._start_failure = self._start_failure, None
            return self._fail(ticket, told)
        try:
            batch = fetcher.fetch(ticket.indices, is_again=ticket.attempt > 0)
        except StopIteration:
            if self._job.kind != _DatasetKind.Iterable:
                raise
            self._has_ended = True
            self._writer.finish()
            return Exhausted(self._id, ticket.number, ticket.attempt, ticket.slab, self._writer.nbytes)
        self._box.phase(black_box.HANDING_OVER)
        place = self._encode(batch, ticket)
        del batch
        fetcher.forget()
        nbytes = self._writer.nbytes
        is_kept = self._writer.finish()
        return Filled(self._id, ticket.number, ticket.attempt, ticket.slab, nbytes, is_kept, tuple(place))

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
        if self._fetcher is not None:
            self._fetcher.forget()
        nbytes = self._writer.nbytes
        is_kept = self._writer.finish()
        return Failed(self._id, ticket.number, ticket.attempt, ticket.slab, nbytes, is_kept, tuple(told))


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
