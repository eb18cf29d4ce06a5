"""`DataLoader`: torch's class, with another engine under it.

The face is torch's own: it subclasses `torch.utils.data.DataLoader`, takes the same arguments in the same
order, and its iterator is a `_MultiProcessingDataLoaderIter`, because Lightning, Accelerate and others look
for exactly these names. What is replaced is what happens after `iter()`.

Runs on the consumer's thread.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import torch
from torch.utils.data import Dataset, IterableDataset, IterDataPipe, MapDataPipe, Sampler
from torch.utils.data import dataloader as torch_dataloader
from torch.utils.data._utils import pin_memory as torch_pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _sharding_worker_init_fn,
)

from penstock._arena import packing
from penstock._arena.arena import Arena
from penstock._base import host, settings
from penstock._base.words import Backend, Birth
from penstock._engine.backends import birth, choice
from penstock._engine.backends.inline import TRIAL_BATCHES, InlineBackend, time_of_a_batch
from penstock._engine.backends.process import ProcessBackend
from penstock._engine.backends.thread import ThreadBackend
from penstock._engine.job import Job
from penstock._engine.lookout import Lookout
from penstock._engine.runtime import Runtime, foreign_process

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
        stall_warn: float | Literal["auto"] | None = "auto",
        stall_timeout: float | None = 30.0,
    ) -> None:
        settings.check_counts(num_workers, prefetch_factor, batch_size)
        settings.check_times(timeout)
        settings.check_workers_needed(num_workers, persistent_workers, multiprocessing_context)
        settings.check_context(multiprocessing_context)
        settings.check_own(backend, arena_bytes, pack_lists)
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
        return super().__iter__()

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return super()._get_iterator()
        if self.backend in ("process", "auto") and not choice.has_processes():
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
            self._worker_init_fn = functools.partial(
                _sharding_worker_init_fn, self._worker_init_fn, self._world_size, self._rank
            )
        self._warm = Warm.of(loader)
        if loader.pack_lists:
            self._warm.packed = packing.pack_large(self._dataset, self._warm.packed)
        context = loader.multiprocessing_context
        method = None if context is None else context.get_start_method()
        self.choice = choice.choose(
            loader.backend,
            method,
            self._trial(loader) if loader.backend == "auto" else None,
            is_iterable=self._dataset_kind == _DatasetKind.Iterable,
        )
        self._arena_bytes = loader.arena_bytes
        self._arena: Arena | None = None
        self._runtime = Runtime(
            self._start(self.choice.backend, self.choice.birth),
            workers=self._num_workers,
            depth=loader.prefetch_factor or 1,
            in_order=loader.in_order,
            rebirths=self._rebirths(),
            lookout=Lookout(loader.stall_warn, loader.stall_timeout),
        )
        self._finalizer = weakref.finalize(self, _close, self._runtime)
        self._reset(loader, first_iter=True)

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
            workers=self._num_workers,
            shared_seed=self._shared_seed,
            birth=how,
            packed=self._warm.packed,
        )

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

    def _rebirths(self) -> list[Callable[[], Any]]:
        """How to begin again, should a forked zygote be poisoned: fork at a better moment, then clean.

        Not for iterable datasets: where they were is known to the lost workers alone.
        """
        if self.choice[:2] != ("process", "forked") or self._dataset_kind == _DatasetKind.Iterable:
            return []
        me = weakref.ref(self)  # the runtime must not keep the iterator alive

        def begin(how: Birth) -> Any:
            iterator = me()
            assert iterator is not None
            return iterator._start("process", how)

        return [functools.partial(begin, "forked"), functools.partial(begin, "clean")]

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: FBT001, FBT002 - torch's
        _BaseDataLoaderIter._reset(self, loader, first_iter)
        self._refuse_in_fork()
        self._runtime.begin(self._sampler_iter, is_first=first_iter, shared_seed=self._shared_seed)

    def __next__(self) -> Any:
        # torch marks every batch for its profiler, which costs as much as handing over a small one.
        if self._dataset_kind == _DatasetKind.Iterable or _is_profiling():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        self._refuse_in_fork()
        try:
            data = self._runtime.next_batch(self._timeout)
        except StopIteration:
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
_TOO_MANY = (
    "This DataLoader will create {} worker processes in total. Our suggested max number of worker in "
    "current system is {}, which is smaller than what this DataLoader is going to create. "
    "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, "
    "lower the worker number to avoid potential slowness/freeze if necessary."
)

DataLoader.__module__ = "penstock"
