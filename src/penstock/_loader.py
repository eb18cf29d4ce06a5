"""`DataLoader`: torch's class, with another engine under it.

The face is torch's own: it subclasses `torch.utils.data.DataLoader`, takes the same arguments in the same
order, and its iterator is a `_MultiProcessingDataLoaderIter`, because Lightning, Accelerate and others look
for exactly these names. What is replaced is what happens after `iter()`.

Runs on the consumer's thread.
"""

from __future__ import annotations

import functools
import operator
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from torch.utils.data import dataloader as torch_dataloader
from torch.utils.data._utils import pin_memory as torch_pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _sharding_worker_init_fn,
)
from torch.utils.data.graph_settings import apply_sharding

from penstock._arena import packing
from penstock._arena.arena import Arena
from penstock._base import host, settings
from penstock._base.words import Action, Backend, Birth, OnIterableCrash
from penstock._engine import seeding, stale
from penstock._engine.backends import birth, choice
from penstock._engine.backends.inline import TRIAL_BATCHES, InlineBackend, PlainFetcher, time_of_a_batch
from penstock._engine.backends.process import ProcessBackend
from penstock._engine.backends.thread import ThreadBackend
from penstock._engine.bad_samples import BadSamples
from penstock._engine.job import Job
from penstock._engine.judge import Judge, killers
from penstock._engine.lookout import Lookout
from penstock._engine.mistakes import Memory, Mistakes
from penstock._engine.policy import ErrorPolicy, decide_untouched, policy_of
from penstock._engine.quarantine import Quarantine
from penstock._engine.resume import Journal
from penstock._engine.runtime import Recovery, Runtime, foreign_process
from penstock.errors import MistakeWarning, SettingsError, WorkerLostError

_T_co = TypeVar("_T_co", covariant=True)
_StockLoader = torch_dataloader.DataLoader  # bound now: `install` may put our class in its place


class DataLoader(_StockLoader[_T_co]):
    """A drop-in `torch.utils.data.DataLoader` whose workers do not freeze, leak or drown in copies.

    All of torch's options mean what they mean in torch, and with equal generators the batches are the
    same, bit for bit. Options of our own, all keyword-only:

    Args:
        backend: where workers live: "process" (default), "thread", "inline", or "auto" to let a short
            measurement decide. Random numbers agree with torch's only for "process".
        arena_bytes: how much memory batches in flight or kept by the program may take before further
            ones are copied out; None takes a quarter of what is free.
        pack_lists: show workers large lists of strings, bytes or numbers in the dataset as one
            packed buffer, so that reading them does not copy their pages into every worker.
        seed: makes a run reproducible. Before each sample all random generators, those kept in the
            dataset too, are seeded from (seed, epoch, index), so that the batches are the same, bit for
            bit, with any number of workers. `epoch` tells which epoch comes next.
        cure: mend mistakes of the dataset that are certain, instead of only warning of them: divide an
            iterable dataset whose workers all yield the same samples, seed random generators kept in a
            map-style dataset, send changed attributes to persistent workers.
        on_iterable_crash: what follows the death of a worker of an iterable dataset without `state_dict`:
            "raise" (default), or "replay" to make its stream again and drop what had been delivered.
        on_error: what becomes of a sample that raises or is None: "raise" (default), "skip",
            "replace", "retry", or a `penstock.ErrorPolicy`. What was bad is in `loader.errors`.
        quarantine: path of a file to which bad samples are appended, one line of JSON each; the
            indices that it already has are left out from the start.
        stall_warn: seconds without any progress of a worker that the program waits for, until a warning
            tells where it is; "auto" (default) is five times what its slowest recent batch took, at least
            10 s; None never warns.
        stall_timeout: seconds until such a worker, if it gives no sign of life at all, is ended; None waits
            for ever.

    """

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,  # noqa: FBT001 - torch's signature, as are the ones below
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002
        drop_last: bool = False,  # noqa: FBT001, FBT002
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        backend: Backend = "process",
        arena_bytes: int | None = None,
        pack_lists: bool = False,
        on_error: Action | ErrorPolicy = "raise",
        quarantine: str | os.PathLike[str] | None = None,
        max_restarts: int = 16,
        max_worker_memory: int | None = None,
        on_iterable_crash: OnIterableCrash = "raise",
        stall_warn: float | Literal["auto"] | None = "auto",
        stall_timeout: float | None = 30.0,
        seed: int | None = None,
        cure: bool = False,
    ) -> None:
        settings.check_counts(num_workers, prefetch_factor, batch_size)
        settings.check_times(timeout)
        settings.check_workers_needed(num_workers, persistent_workers, multiprocessing_context)
        settings.check_context(multiprocessing_context)
        settings.check_own(backend, arena_bytes, pack_lists)
        settings.check_restarts(max_restarts, max_worker_memory)
        settings.check_seed(seed, backend)
        settings.check_mistakes(cure, on_iterable_crash)
        settings.check_quarantine(quarantine)
        policy_of(on_error)
        settings.check_stalls(stall_warn, stall_timeout)
        # A data pipe may be told to shuffle; only torch knows how.
        if not isinstance(dataset, (IterDataPipe, MapDataPipe)):
            order = {
                "shuffle": shuffle,
                "sampler": sampler,
                "batch_sampler": batch_sampler,
                "batch_size": batch_size,
                "drop_last": drop_last,
            }
            settings.check_order(isinstance(dataset, IterableDataset), order)
        # Set before torch's __init__: code that watches it finish must find a whole loader.
        self.backend = backend
        self.arena_bytes = arena_bytes
        self.pack_lists = pack_lists
        self.max_restarts = max_restarts
        self.max_worker_memory = max_worker_memory
        self.seed = seed
        self._sample_seed = None if seed is None else operator.index(seed)
        self._is_own_shuffle = bool(shuffle) and generator is None
        self.cure = cure
        self.on_iterable_crash = on_iterable_crash
        self.on_error = on_error
        self.quarantine = quarantine
        self.errors = BadSamples()
        self._quarantine = None if quarantine is None else Quarantine(quarantine)
        self.stall_warn = stall_warn
        self.stall_timeout = stall_timeout
        self._warm = Warm(self)
        options: dict[str, Any] = {"in_order": in_order} if _HAS_IN_ORDER else {}
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **options,
        )
        self.in_order = in_order

    # A property of this very class: tools that mock a loader from its class look for it here.
    @property
    def multiprocessing_context(self) -> Any:
        """The context that worker processes follow; None for the platform's default."""
        return _StockLoader.multiprocessing_context.fget(self)  # type: ignore[attr-defined]

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        _StockLoader.multiprocessing_context.fset(self, context)  # type: ignore[attr-defined]

    def __iter__(self) -> _BaseDataLoaderIter:
        if isinstance(self._iterator, LoaderIterator) and not self._iterator.can_be_reset:
            self._iterator = None
        if self._sample_seed is None:
            return super().__iter__()
        return self._begin_seeded_epoch(self._sample_seed)

    # Subclasses may have a `seed` and an `epoch` of their own, with other meanings: what we decide with is
    # kept apart.
    _sample_seed: int | None = None
    _epoch = 0

    @property
    def epoch(self) -> int:
        """With `seed`: the epoch that the next `iter()` begins. Counts up from 0; set it to resume."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if self._sample_seed is not None:
            settings.check_epoch(epoch)
            epoch = operator.index(epoch)
        self._epoch = epoch

    def _begin_seeded_epoch(self, seed: int) -> _BaseDataLoaderIter:
        sampler = self.sampler if self._is_own_shuffle and isinstance(self.sampler, RandomSampler) else None
        if sampler is not None:
            sampler.generator = seeding.generator_for(seed, self._epoch, "shuffle")
        try:
            iterator = super().__iter__()
        finally:
            if sampler is not None:
                sampler.generator = None  # the order is drawn: `iter()` asks for the first batch's indices
        self._epoch += 1
        return iterator

    def _get_iterator(self) -> _BaseDataLoaderIter:
        has_care = _policy_with_care(self) is not None
        if self.num_workers == 0 and self._sample_seed is None and not has_care:
            return _naming_samples(super()._get_iterator())
        if self.num_workers and self.backend in ("process", "auto") and not choice.has_processes():
            if self._sample_seed is not None:
                warnings.warn(_NO_PROCESSES_TO_SEED, stacklevel=4)
                return LoaderIterator(self)
            if has_care:
                raise SettingsError("PS005", _NO_CARE, fix="pass backend='thread', or set num_workers=0")
            warnings.warn(_NO_PROCESSES, stacklevel=3)
            return super()._get_iterator()
        self.check_worker_number_rationality()
        return LoaderIterator(self)

    def check_worker_number_rationality(self) -> None:
        """Warn, as torch does, when there are more workers than CPUs; the cgroup's quota counts too."""
        cpus = host.cpu_count()
        if self.num_workers > cpus:
            warnings.warn(_TOO_MANY.format(self.num_workers, cpus), stacklevel=3)


class Warm:
    """What a loader keeps between two passes: memory for batches, packed lists, a measurement.

    It belongs to one loader in one process: a copy of the loader, shallow, deep or pickled, gets its own,
    and so does a process forked from this one.
    """

    def __init__(self, owner: DataLoader[Any] | None = None) -> None:
        self.owner = None if owner is None else weakref.ref(owner)
        self.pid = os.getpid()  # a process forked from ours must not write into our memory
        self.arena: Arena | None = None
        self.packed: dict[int, Any] = {}
        self.batch_s: float | None = None
        self.mistakes = Memory()

    def __reduce__(self) -> tuple[Any, ...]:
        return Warm, ()

    @staticmethod
    def of(loader: DataLoader[Any]) -> Warm:
        """The loader's own, made new if it has been copied from another."""
        warm = loader._warm
        if warm.owner is None or warm.owner() is not loader or warm.pid != os.getpid():
            warm = loader._warm = Warm(loader)
        return warm

    def take_arena(self, budget: int | None, *, is_pinned: bool) -> Arena:
        """The arena that the last pass left, or a new one."""
        arena, self.arena = self.arena, None
        return arena or Arena(budget, is_pinned=is_pinned)

    def keep_arena(self, arena: Arena) -> None:
        """After a pass: leave its warm memory to the next one."""
        if self.arena is not None or self.owner is None or self.owner() is None:
            arena.close()
            return
        arena.idle()
        self.arena = arena


class LoaderIterator(_MultiProcessingDataLoaderIter):
    """One pass over a loader, or, with persistent workers, all of them."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        _BaseDataLoaderIter.__init__(self, loader)
        self._owner = os.getpid()
        self._shutdown = False
        self._workers: list[Any] = []
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._worker_init_fn = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            if self._num_workers == 0:
                apply_sharding(self._dataset, self._world_size, self._rank)  # as torch does without workers
            self._worker_init_fn = functools.partial(
                _sharding_worker_init_fn, self._worker_init_fn, self._world_size, self._rank
            )
        self._seed = loader._sample_seed
        self._epoch = loader._epoch
        if self._seed is not None:
            self._base_seed = seeding.derive(self._seed, self._epoch, "workers") >> 2  # room for worker ids
        self._seats = self._num_workers or 1  # without workers, the consumer takes the place of one
        self._take_policy(loader)
        self._warm = Warm.of(loader)
        if loader.pack_lists:
            self._warm.packed = packing.pack_large(self._dataset, self._warm.packed)
        self._cure, self._is_watched = loader.cure, False
        context = loader.multiprocessing_context
        method = None if context is None else context.get_start_method()
        is_here = self._num_workers == 0 or (self._seed is not None and not choice.has_processes())
        self.choice = choice.choose(
            "inline" if is_here else loader.backend,
            method,
            self._trial(loader) if loader.backend == "auto" and self._num_workers else None,
            is_iterable=self._dataset_kind == _DatasetKind.Iterable,
        )
        self._arena_bytes = loader.arena_bytes
        self._arena: Arena | None = None
        is_pipe = isinstance(self._dataset, (IterDataPipe, MapDataPipe))  # torch divides and seeds these
        self._is_watched = self.choice.backend == "process" and not is_pipe
        is_kept = self._is_watched and self._persistent_workers
        self._attributes = stale.snapshot(self._dataset) if is_kept else None
        self._runtime = Runtime(
            self._start(self.choice.backend, self.choice.birth),
            workers=self._seats,
            depth=loader.prefetch_factor or 1,
            in_order=loader.in_order,
            recovery=self._recovery(loader.max_restarts, Lookout(loader.stall_warn, loader.stall_timeout)),
            judge=self._judge(),
        )
        self._finalizer = weakref.finalize(self, _close, self._runtime)
        self._mistakes = self._runtime.mistakes = Mistakes(
            self._seats,
            self._warm.mistakes,
            is_iterable=self._dataset_kind == _DatasetKind.Iterable,
            cure=loader.cure,
            is_persistent=self._persistent_workers,
        )
        self._runtime.journal = self._journal(loader.on_iterable_crash)
        self._reset(loader, first_iter=True)

    def _take_policy(self, loader: DataLoader[Any]) -> None:
        self._max_worker_memory = loader.max_worker_memory
        self._errors, self._quarantine = loader.errors, loader._quarantine
        self._policy = _policy_with_care(loader)
        if self._policy is not None and self._policy.can_skip and self._world_size > 1:
            warnings.warn(_RANKS, stacklevel=5)
        self._pool = _pool(loader) if self._policy is not None else 0

    def _journal(self, on_crash: str) -> Journal | None:
        is_kept = self.choice.backend == "process" and self._dataset_kind == _DatasetKind.Iterable
        return Journal(self._seats, on_crash) if is_kept else None

    def _trial(self, loader: DataLoader[Any]) -> float | None:
        """For backend="auto": what a batch costs here, measured once per loader."""
        if self._warm.batch_s is None and self._dataset_kind == _DatasetKind.Map:
            size = loader.batch_size or 1
            try:
                indices = range(min(len(loader.dataset), size * TRIAL_BATCHES))  # type: ignore[arg-type]
            except TypeError:
                return None  # a dataset without length
            batches = [list(indices[start : start + size]) for start in range(0, len(indices), size)]
            if not self._auto_collation:
                batches = [index for batch in batches for index in batch]  # type: ignore[misc]
            self._warm.batch_s = time_of_a_batch(self._job("forked"), batches)
        return self._warm.batch_s

    def _job(self, how: Any) -> Job:
        return Job(
            kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=int(self._base_seed),
            init_fn=self._worker_init_fn,
            workers=self._seats,
            shared_seed=self._shared_seed,
            birth=how,
            packed=self._warm.packed,
            policy=self._policy,
            quarantined=frozenset() if self._quarantine is None else self._quarantine.known,
            condemned=frozenset() if self._policy is None else killers(self._errors),
            pool=self._pool,
            max_worker_memory=self._max_worker_memory,
            seed=self._seed,
            epoch=self._epoch,
            is_watched=self._is_watched,
            cure=self._cure,
        )

    def _judge(self) -> Judge | None:
        if self._policy is None:
            return None
        return Judge(self._policy, self._errors, self._quarantine, is_batched=self._auto_collation)

    def _start(self, backend: Backend, how: Birth) -> Any:
        job = self._job(how)
        if backend == "inline":
            return InlineBackend(job)
        if backend == "thread":
            threads = ThreadBackend(job)
            self._workers = list(threads.threads)
            return threads
        zygote = birth.forked(job) if how == "forked" else birth.clean(job)
        if self._arena is None:  # else workers are begun again, and answered batches still lie in it
            is_pinned = self._pin_memory and torch.cuda.is_available()
            self._arena = self._warm.take_arena(self._arena_bytes, is_pinned=is_pinned)
        processes = ProcessBackend(zygote, self._num_workers, self._arena)
        processes.on_close = functools.partial(self._warm.keep_arena, self._arena)
        self._workers = list(processes.processes)
        return processes

    def _recovery(self, max_restarts: int, lookout: Lookout) -> Recovery:
        """What may be done when workers are lost."""
        birth = self.choice.birth
        if self.choice.backend != "process":
            return Recovery()
        if self._dataset_kind == _DatasetKind.Iterable:  # one by one, where `resume` can tell where to go on
            return Recovery(max_restarts=max_restarts, lookout=lookout)
        begin = self._begin()
        # A forked zygote may be poisoned: fork at a better moment, then from a clean process.
        ways: tuple[Birth, ...] = ("forked", "clean") if birth == "forked" else ()
        return Recovery(
            again=functools.partial(begin, birth),
            rebirths=tuple(functools.partial(begin, way) for way in ways),
            max_restarts=max_restarts,
            raises_on_bad=self._policy is None or decide_untouched(self._policy, WorkerLostError) == "raise",
            lookout=lookout,
        )

    def _begin(self) -> Callable[[Birth], Any]:
        me = weakref.ref(self)  # the runtime must not keep the iterator alive

        def begin(how: Birth) -> Any:
            iterator = me()
            assert iterator is not None
            return iterator._start("process", how)

        return begin

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002 - torch's
        _BaseDataLoaderIter._reset(self, loader, first_iter)
        self._refuse_in_fork()
        self._epoch = loader._epoch
        self._runtime.begin(
            self._sampler_iter,
            is_first=first_iter,
            shared_seed=self._shared_seed,
            epoch=self._epoch,
            attributes=() if first_iter or self._attributes is None else self._refresh(self._attributes),
        )
        self._warn(4)

    def _refresh(self, before: dict[stale.Path, Any]) -> tuple[stale.Parcel, ...]:
        """Look for attributes that persistent workers do not see; with cure=True, what to send them."""
        now = stale.snapshot(self._dataset)
        changes = stale.changes(self._dataset, before, now)
        if not self._cure:
            for change in changes:
                self._mistakes.say("PS303", stale.warning(change))
            return ()
        parcels = []
        for change in changes:
            try:
                parcels.append(stale.pack(change, self._dumps))
            except Exception as error:  # noqa: BLE001 - whatever pickling user objects raises
                self._mistakes.say(
                    "PS303 not sent", stale.not_sent(change, f"{type(error).__name__}: {error}")
                )
        self._attributes = now
        if parcels:
            self._mistakes.say("PS303", stale.cured(changes[0]))
        return tuple(parcels)

    def _dumps(self, value: Any) -> bytes:
        if self.choice.birth == "forked":
            return pickle.dumps(value, 5)
        import cloudpickle

        data: bytes = cloudpickle.dumps(value, 5)  # a clean worker has the classes of `__main__` by value
        return data

    def _warn(self, level: int) -> None:
        """Say what was found, between two batches: a warning that is made an error loses none."""
        while self._mistakes.findings:
            warnings.warn(self._mistakes.findings.popleft(), MistakeWarning, stacklevel=level + 1)

    def __next__(self) -> Any:
        # torch marks every batch for its profiler, which costs as much as handing over a small one.
        if self._dataset_kind == _DatasetKind.Iterable or _is_profiling():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        self._refuse_in_fork()
        if self._mistakes.findings:
            self._warn(4 if self._dataset_kind == _DatasetKind.Iterable else 3)
        try:
            data = self._runtime.next_batch(self._timeout)
        except StopIteration:
            self._warn(4 if self._dataset_kind == _DatasetKind.Iterable else 3)
            if not self._persistent_workers:
                self._shutdown_workers()
            raise
        if self._pin_memory:
            data = _pin(data, self._pin_memory_device)
        return data

    def _shutdown_workers(self) -> None:
        self._shutdown = True
        self._finalizer()

    def __del__(self) -> None:
        # The finalizer does it; torch's own __del__ would look for queues that we do not have.
        pass

    @property
    def can_be_reset(self) -> bool:
        """Not with the workers of the process that we were forked from, nor after an interrupted step."""
        return self._owner == os.getpid() and not self._runtime.is_torn

    def _refuse_in_fork(self) -> None:
        if self._owner != os.getpid():
            raise foreign_process()


def _naming_samples(iterator: _BaseDataLoaderIter) -> _BaseDataLoaderIter:
    """Take torch's own iterator for `num_workers=0`; failures of a map-style dataset name the sample."""
    if iterator._dataset_kind == _DatasetKind.Map:
        iterator._dataset_fetcher = PlainFetcher(  # type: ignore[attr-defined]
            Job(
                kind=_DatasetKind.Map,
                dataset=iterator._dataset,
                auto_collation=iterator._auto_collation,
                collate_fn=iterator._collate_fn,
                drop_last=iterator._drop_last,
                base_seed=0,
                init_fn=None,
                workers=1,
                shared_seed=None,
                birth="forked",
            )
        )
    return iterator


def _policy_with_care(loader: DataLoader[Any]) -> ErrorPolicy | None:
    """The loader's policy; None when every bad sample raises and nothing is written down."""
    policy = policy_of(loader.on_error)
    return None if policy.is_plain and loader._quarantine is None else policy


def _pool(loader: DataLoader[Any]) -> int:
    """The length of the dataset if the sampler draws from all of it, else 0.

    Samples that the sampler would never draw, such as those held back for validation, replace nothing.
    """
    batches = loader.batch_sampler
    sampler: Any = loader.sampler if batches is None else getattr(batches, "sampler", None)
    if batches is not None and type(batches) is not BatchSampler:
        return 0
    source = getattr(sampler, "dataset" if isinstance(sampler, DistributedSampler) else "data_source", None)
    if type(sampler) not in (SequentialSampler, RandomSampler, DistributedSampler) or source is None:
        return 0
    try:
        size = len(loader.dataset)  # type: ignore[arg-type]
        return size if len(source) == size else 0
    except TypeError:
        return 0  # a dataset without length


def _close(runtime: Runtime) -> None:
    # At the end of the interpreter daemon threads still run. What one of them is using is not ours to take
    # away under its hands; the workers end with the process.
    if threading.main_thread().is_alive() or not runtime.is_in_use_elsewhere():
        runtime.close()


_is_profiling: Callable[[], bool] = torch._C._autograd._profiler_enabled
_pin: Callable[[Any, Any], Any] = torch_pin_memory.pin_memory
_HAS_IN_ORDER = "in_order" in _StockLoader.__init__.__code__.co_varnames  # torch 2.6 and later
_NO_PROCESSES = (
    "[PS005] penstock's process workers need Linux; this loader uses torch's own workers instead. "
    "backend='thread' works on every platform."
)
_NO_PROCESSES_TO_SEED = (
    "[PS005] penstock's process workers need Linux; with `seed` this loader makes its batches in the "
    "training process instead."
)
_NO_CARE = "this platform has no process workers of ours, and torch's know no on_error or quarantine"
_RANKS = (
    '[PS507] on_error="skip" with several ranks: batches become smaller, and one whose samples are all bad '
    "is not delivered, so that ranks may end at different steps and wait for each other. "
    'on_error="replace" keeps the number of batches and their size.'
)
_TOO_MANY = (
    "This DataLoader will create {} worker processes in total. Our suggested max number of worker in "
    "current system is {}, which is smaller than what this DataLoader is going to create. "
    "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, "
    "lower the worker number to avoid potential slowness/freeze if necessary."
)

DataLoader.__module__ = "penstock"
