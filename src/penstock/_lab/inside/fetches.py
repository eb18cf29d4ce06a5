"""Each batch as it is made, in a worker or in the consumer: samples one by one, then collate.

torch's fetchers keep doing the work. While one of them fetches, its `dataset`, `dataset_iter` and
`collate_fn` are ours, which hand every call on to the true ones and look at what comes back; afterwards they
are as before.

Time is bounded: what we spend on looking is held to a share of the time that the program itself spends, and
details become rarer after the first samples.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Any

from penstock._lab.inside import attributes, collating, proc, samples
from penstock._lab.inside.frames import unwind
from penstock._lab.inside.log import plain
from penstock._lab.inside.observer import Context, Observer
from penstock._lab.inside.quiet import quiet

FULL_SAMPLES = 1_000  # of a pass, in one process, that are told one by one
FULL_IN_ALL = 4_000  # of a process
SPARSE_S = 0.2  # afterwards, one batch in so much time is told
WEIGHED_S = 0.2  # and one in so much is told without its samples: memory and containers grow over a whole run

# Samples that take longer are watched one by one to the end: that costs a tenth of it at most. Of faster ones
# only some batches are, and a look at a stuck process names the batch.
SLOW_S = 60e-6
_GROWN_AT = 3  # batches after which containers that grow are told

_MOST_NEWS = 12  # passes of a worker that are told of
_WATCH = "_penstock_fetch"


def install(observer: Observer, module: Any) -> None:
    """Put our functions around those of torch's fetchers."""
    fetch: Any = module._utils.fetch  # noqa: SLF001 - torch's own names, here and below
    _patch_init(observer, fetch)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(fetch, name, None)
        if kind is not None and "fetch" in vars(kind):
            _patch_fetch(kind)


def _patch_init(observer: Observer, fetch: Any) -> None:
    base, stream = fetch._BaseDatasetFetcher, fetch._IterableDatasetFetcher  # noqa: SLF001
    original, streaming = base.__init__, stream.__init__

    @functools.wraps(original)
    def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, dataset, *args, **kwargs)
        _begin(observer, self)

    @functools.wraps(streaming)
    def __init_stream__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        try:
            streaming(self, *args, **kwargs)
        except BaseException as error:
            _failed(observer, error)
            unwind(error)
            raise

    base.__init__ = __init__
    stream.__init__ = __init_stream__


@quiet
def _begin(observer: Observer, fetcher: Any) -> None:
    context = observer.context
    if context is None:
        return
    if context.worker >= 0:  # a persistent worker makes a new fetcher for each pass
        context = context._replace(number=context.number + observer.fetchers)
    watch = fetcher.__dict__[_WATCH] = Fetches(observer, context, fetcher)
    dataset = observer.mends.of_pass(fetcher.dataset, context.number, fetcher.collate_fn)
    if not watch.is_stream:
        fetcher.dataset = dataset
    if context.worker >= 0:
        begin_pass(observer, context, dataset, fetcher.collate_fn)


@quiet
def begin_pass(observer: Observer, context: Context, dataset: Any, collate_fn: Any) -> None:
    """In a worker: a pass begins; which attributes of its copy are not as in its first?"""
    observer.fetchers += 1
    if observer.fetchers == 1:
        observer.attributes = attributes.told(dataset, collate_fn)
    elif observer.fetchers <= _MOST_NEWS:
        observer.log.write(
            "news",
            loader=context.loader,
            number=context.number,
            worker=context.worker,
            changed=attributes.news(observer.attributes, dataset, collate_fn),
        )


@quiet
def _failed(observer: Observer, error: BaseException) -> None:
    context = observer.context or Context("", 0)
    observer.report(error, "sample", **_place(context))


def _patch_fetch(kind: Any) -> None:
    original = kind.fetch

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        watch = self.__dict__.get(_WATCH)
        if watch is None:
            return original(self, possibly_batched_index)
        watch.begin(self, possibly_batched_index)
        try:
            batch = original(self, possibly_batched_index)
        except BaseException as error:
            watch.restore(self)
            watch.failed(error)
            unwind(error)
            raise
        watch.restore(self)
        watch.done(batch)
        return watch.mends.made(batch) if watch.mends.has_batches else batch

    kind.fetch = fetch


class Items:
    """A map-style dataset, watched."""

    def __init__(self, dataset: Any, watch: Fetches) -> None:
        self._dataset = dataset
        self._watch = watch

    def __getitem__(self, index: Any) -> Any:
        watch = self._watch
        watch.take(index)
        began, cpu = time.monotonic(), time.process_time()
        try:
            sample = watch.mends.get(self._dataset, index) if watch.mends.has_gets else self._dataset[index]
        except BaseException as error:
            watch.sample_failed(index, error)
            unwind(error)
            raise
        return watch.sample(index, sample, time.monotonic() - began, time.process_time() - cpu)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class ManyItems(Items):
    """One that gives several samples at a time."""

    def __getitems__(self, indices: Any) -> Any:
        watch = self._watch
        watch.take(indices)
        began, cpu = time.monotonic(), time.process_time()
        try:
            if watch.mends.has_gets:
                several = [watch.mends.get(self._dataset, index) for index in indices]
            else:
                several = self._dataset.__getitems__(indices)
        except BaseException as error:
            watch.sample_failed(indices, error)
            unwind(error)
            raise
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        return watch.several(indices, several, seconds, cpu)


class Stream:
    """An iterator over an iterable dataset, watched."""

    def __init__(self, iterator: Any, watch: Fetches) -> None:
        self._iterator = iterator
        self._watch = watch

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        watch = self._watch
        index = watch.taken
        watch.take(index)
        began, cpu = time.monotonic(), time.process_time()
        try:
            sample = watch.next_of(self._iterator)
        except BaseException as error:
            watch.sample_failed(index, error)
            unwind(error)
            raise
        return watch.sample(index, sample, time.monotonic() - began, time.process_time() - cpu)


class Fetches:
    """The batches that one fetcher makes: one pass, in one process."""

    def __init__(self, observer: Observer, context: Context, fetcher: Any) -> None:
        self._observer = observer
        self.mends = observer.mends
        self._context = context
        self.is_stream = not type(fetcher).__name__.startswith("_Map")
        self._has_many = not self.is_stream and bool(getattr(fetcher.dataset, "__getitems__", None))
        self._true: tuple[Any, Any, Any] = (None, None, None)
        self._told = 0
        self._told_at = 0.0
        self._is_told = self._is_weighed = self._is_watched = True
        self._pace_s = 0.0  # of one sample, when samples were watched last
        self._weighed_at = self._mark = 0.0
        self.taken = 0
        self._indices: list[Any] = []
        self._index: Any = None
        self._prefix = f"[{json.dumps(context.loader)},{context.number},{context.worker},"
        self._samples_s = self._collate_s = 0.0
        self._began = self._cpu = self._queued = 0.0
        self._looked = 0.0  # seconds of this batch that were ours
        self._read = 0
        self._looker = observer.looker
        self._state: Any = None
        self._batches = 0
        self.next_of: Callable[[Any], Any] = next

    # ---- around a batch ------------------------------------------------------------------------

    def begin(self, fetcher: Any, indices: Any) -> None:
        """A batch is to be made."""
        began = time.monotonic()
        self._true = fetcher.dataset, getattr(fetcher, "dataset_iter", None), fetcher.collate_fn
        dataset, stream, _ = self._true
        self._indices, self._index = [], indices
        self._samples_s = self._collate_s = 0.0
        self._prepare(dataset)
        self._is_watched = self._is_told or self.mends.needs_samples or self._pace_s >= SLOW_S
        if not self._is_watched:
            self._observer.page.put(f"{self._prefix}{_json(indices)}]")
        elif self.is_stream:
            self.next_of = self.mends.next_of()
            fetcher.dataset_iter = Stream(stream, self)
        else:
            fetcher.dataset = (ManyItems if self._has_many else Items)(dataset, self)
        fetcher.collate_fn = self.collate
        self._looked = 0.0
        self._began, self._cpu = time.monotonic(), time.process_time()
        self._observer.spent += self._began - began

    def restore(self, fetcher: Any) -> None:
        """Everything as before."""
        fetcher.dataset, stream, fetcher.collate_fn = self._true
        if self.is_stream:
            fetcher.dataset_iter = stream

    @quiet
    def _prepare(self, dataset: Any) -> None:
        from penstock._lab.inside.state import State

        if self._state is None:
            self._state = State(dataset, self._true[2])
        self._is_told = self._may_tell()
        self._is_weighed = self._is_told or time.monotonic() - self._weighed_at >= WEIGHED_S
        self._state.before(is_told=self._is_told)
        if self._is_weighed:
            self._read, self._queued = proc.read_bytes(), proc.queued_s()

    def _may_tell(self) -> bool:
        looker, now = self._looker, time.monotonic()
        if self._told >= FULL_SAMPLES or looker.told >= FULL_IN_ALL or not looker.has_time:
            return now - self._told_at >= SPARSE_S and looker.has_time
        return True

    def take(self, index: Any) -> None:
        """A sample is asked for."""
        self._observer.page.put(f"{self._prefix}{_json(index)}]")
        self.taken += 1

    def sample(self, index: Any, sample: Any, seconds: float, cpu: float) -> Any:
        """A sample is there."""
        began, self._mark = time.monotonic(), time.thread_time()
        self._samples_s += seconds
        self._indices.append(index)
        if self._is_told:
            self._tell(index, sample, seconds, cpu)
        if self.mends.has_samples:
            sample = self.mends.sample(sample)
        self._count(began)
        return sample

    def several(self, indices: Any, several: Any, seconds: float, cpu: float) -> Any:
        """Samples that were made together."""
        began, self._mark = time.monotonic(), time.thread_time()
        self._samples_s += seconds
        self._indices.extend(list(indices))
        self.taken += len(indices) - 1
        if self._is_told and isinstance(several, (list, tuple)):
            share = max(1, len(several))
            for index, sample in zip(indices, several, strict=False):
                self._tell(index, sample, seconds / share, cpu / share)
        if self.mends.has_samples and isinstance(several, (list, tuple)):
            several = [self.mends.sample(sample) for sample in several]
        self._count(began)
        return several

    def _count(self, began: float) -> None:
        spent = time.monotonic() - began
        self._looked += spent
        self._observer.spent += spent
        # Of a busy machine's time, what was really ours: a look that waits for a CPU is not a longer look.
        self._looker.spent += min(spent, time.thread_time() - self._mark)

    @quiet
    def _tell(self, index: Any, sample: Any, seconds: float, cpu: float) -> None:
        self._told += 1
        self._looker.told += 1
        self._observer.log.hold(
            "sample",
            **_place(self._context),
            index=plain(index),
            seconds=round(seconds, 7),
            cpu_s=round(cpu, 7),
            **samples.describe(sample, has_digest=self._observer.plan.digests),
        )

    def collate(self, data: Any) -> Any:
        """The user's collate function, watched."""
        began = time.monotonic()
        collate_fn = self._true[2]
        if not self._is_watched:
            self._count_unwatched(data, began)
        try:
            if self.mends.has_samples:
                data = self.mends.together(data)
            batch = self.mends.collate(collate_fn, data)
        except BaseException as error:
            self._collate_failed(data, error)
            unwind(error)
            raise
        self._collate_s = time.monotonic() - began
        return batch

    @quiet
    def _count_unwatched(self, data: Any, began: float) -> None:
        self._samples_s = began - self._began
        number = len(data) if isinstance(data, (list, tuple)) else 1
        self._indices = list(range(self.taken, self.taken + number))
        if not self.is_stream and isinstance(self._index, (list, tuple)):
            self._indices = list(self._index)
        self.taken += number

    @quiet
    def done(self, batch: Any) -> None:
        """The batch is made."""
        began, cpu, self._mark = time.monotonic(), time.process_time(), time.thread_time()
        self._observer.page.put("")
        self._looker.work(began - self._began, cpu - self._cpu)
        if not self._is_watched and not self._indices:
            self._count_unwatched(self._index, began)
        if self._is_watched and self._indices:
            self._pace_s = self._samples_s / len(self._indices)
        if self._is_told:
            self._told_at = began
        if self._is_weighed:
            self._weighed_at = began
            self._tell_fetch(batch, cpu)
        self.mends.done(self._true[0], self._state)
        self._count(began)

    def _tell_fetch(self, batch: Any, cpu: float) -> None:
        log = self._observer.log
        log.hold(
            "fetch",
            **_place(self._context),
            indices=[plain(index) for index in self._indices[:256]],
            made=self.taken,
            began_s=round(self._began, 6),
            samples_s=round(self._samples_s, 7),
            collate_s=round(self._collate_s, 7),
            cpu_s=round(max(0.0, cpu - self._cpu - self._looked), 7),
            queued_s=round(proc.queued_s() - self._queued, 7),
            read_nbytes=max(0, proc.read_bytes() - self._read),
            **self._looker.vitals(),
            **self._state.after(),
            **_shipped(batch),
        )
        log.flush()
        self._batches += 1
        if self._batches == _GROWN_AT:
            self._tell_grown()

    def _tell_grown(self) -> None:
        grown = self._state.grown()
        if grown:
            self._observer.log.write("things", loader=self._context.loader, things=grown)

    # ---- failures ------------------------------------------------------------------------------

    @quiet
    def sample_failed(self, index: Any, error: BaseException) -> None:
        """The dataset raised."""
        if self.is_stream and isinstance(error, StopIteration):
            return
        self._observer.page.put("")
        self._observer.report(error, "sample", **_place(self._context), index=plain(index))

    @quiet
    def _collate_failed(self, data: Any, error: BaseException) -> None:
        index, field, note = collating.guilty(data, self._indices)
        self._observer.report(
            error, "collate", **_place(self._context), index=plain(index), field=field, note=note
        )

    @quiet
    def failed(self, error: BaseException) -> None:
        """The batch could not be made."""
        self._observer.page.put("")
        if not isinstance(error, StopIteration) or not self.is_stream:
            index = self._index if self._is_watched else _index_of(error, self._index)
            self._observer.report(error, "sample", **_place(self._context), index=plain(index))
        self._observer.log.flush()


def _index_of(error: BaseException, indices: Any) -> Any:
    """The index at which torch's own loop over the samples was, as its frame has it."""
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if frame.f_code.co_filename.endswith("fetch.py") and "idx" in frame.f_locals:
            return frame.f_locals["idx"]
        step = step.tb_next
    return indices


def _place(context: Context) -> dict[str, Any]:
    return {"loader": context.loader, "iterator": context.number, "worker": context.worker}


def _json(index: Any) -> str:
    if type(index) is int:
        return str(index)
    if type(index) is list and index and type(index[0]) is type(index[-1]) is int:
        return str(index[:64])
    return _odd_json(index) or '"?"'


@quiet
def _odd_json(index: Any) -> str:
    return json.dumps(plain(index))


def _shipped(batch: Any) -> dict[str, int]:
    """What the tensors of a batch show, and what they would ship."""
    from penstock._lab.inside.batches import is_dense, is_tensor, leaves, nbytes

    shown = whole = tensors = 0
    storages: set[int] = set()
    for value in leaves(batch):
        if not is_tensor(value):
            continue
        tensors += 1
        shown += nbytes(value)
        if not is_dense(value):
            continue
        storage = value.untyped_storage()
        if storage.data_ptr() not in storages and not storage.is_shared():
            storages.add(storage.data_ptr())
            whole += storage.nbytes()
    return {"nbytes": shown, "storage_nbytes": whole, "tensors": tensors}
