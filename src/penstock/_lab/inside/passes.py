"""iter() and next(): each pass over a loader, as the program makes it.

    iter ──▶ started ──▶ next, batch, next, batch … ──▶ ended ("exhausted", "raised", "dropped")

The pass hangs on torch's iterator object, and ends at the latest when that object goes.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections import Counter
from types import FrameType
from typing import Any

from penstock._lab.inside import batches
from penstock._lab.inside.drive import Drive
from penstock._lab.inside.frames import functions_of, unwind
from penstock._lab.inside.observer import Context, Observer, is_reimport, share
from penstock._lab.inside.quiet import quiet, uncollected

FULL_BATCHES = 200  # of a loader that are told one by one; later ones at most every SPARSE_S
SPARSE_S = 0.05
_LOOKED_AT = 20  # batches of a pass whose content is looked at each time
_HELD = 1_000  # first batches of a pass that are all watched for being kept; later some

_HANDLES_AT = (3, 20)  # batches after which we look at files that workers share

_MOST_LOADERS = 200  # that are described

_REAPED_S = 1.0  # after which a worker whose pipe broke is not gone

_PASS = "_penstock_pass"  # noqa: S105 - an attribute, not a secret


def install(observer: Observer, module: Any) -> None:
    """Put our functions around torch's."""
    passes = Passes(observer)
    observer.drive = Drive(observer, passes)
    _patch_iter(passes, module.DataLoader)
    patch_next(module._BaseDataLoaderIter)  # noqa: SLF001 - torch's own names, here and below
    several = getattr(module, "_MultiProcessingDataLoaderIter", None)
    if several is not None and hasattr(several, "_shutdown_workers"):
        _patch_shutdown(several)


def _patch_iter(passes: Passes, stock: Any) -> None:
    original = stock.__iter__

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        ready = passes.begin(self, sys._getframe(1), __iter__)  # noqa: SLF001
        if ready is not None and ready.iterator is not None:
            return ready.iterator
        try:
            iterator = original(self)
        except BaseException as error:
            passes.failed(ready, error)
            unwind(error)
            raise
        return passes.started(ready, iterator) or iterator

    stock.__iter__ = __iter__


def patch_next(kind: Any) -> None:
    """Observe `__next__` of a class of iterators, once."""
    original = kind.__dict__.get("__next__")
    if original is None or hasattr(original, "__penstock__"):
        return

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        seen = self.__dict__.get(_PASS)
        if seen is None or seen.is_waiting:  # a class above this one is observed as well
            return original(self)
        if seen.is_over():
            raise StopIteration
        seen.wait()
        try:
            batch = original(self)
        except BaseException as error:
            seen.stopped(error)
            unwind(error)
            raise
        return seen.got(batch)

    __next__.__penstock__ = True  # type: ignore[attr-defined]
    kind.__next__ = __next__


def _patch_shutdown(kind: Any) -> None:
    original = kind._shutdown_workers  # noqa: SLF001

    @functools.wraps(original)
    def _shutdown_workers(self: Any) -> None:
        seen = self.__dict__.get(_PASS)
        is_due = seen is not None and not getattr(self, "_shutdown", True)
        began = time.monotonic()
        try:
            original(self)
        except BaseException as error:
            unwind(error)
            raise
        if is_due:
            seen.shut(time.monotonic() - began, getattr(self, "_workers", ()))

    kind._shutdown_workers = _shutdown_workers  # noqa: SLF001


class Ready:
    """What is known when iter() begins."""

    __slots__ = ("before", "began", "context", "iterator", "loader")

    def __init__(self, loader: Any, context: Context, before: Context | None) -> None:
        self.loader = loader
        self.context = context
        self.before = before
        self.began = time.monotonic()
        self.iterator: Any = None  # one that is to be handed out instead of a new one


class Passes:
    """Every pass in this process."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._pid = os.getpid()
        self._numbers: Counter[str] = Counter()
        self.told: Counter[str] = Counter()  # batches of each loader so far
        self.live: weakref.WeakSet[Any] = weakref.WeakSet()
        self.handles: dict[str, list[Any]] = {}  # of each loader: files that workers share with us

    @quiet
    def begin(self, loader: Any, frame: FrameType, again: Any) -> Ready | None:
        """iter(loader) begins. Returns what the end of it needs."""
        if is_reimport():
            return None
        observer = self.observer
        key = observer.makings.used(loader, frame=frame)
        observer.drive.take_over(loader, key, again)
        context = Context(key, self._numbers[key])
        ready = Ready(loader, context, observer.context)
        ready.iterator = observer.mends.reused(loader)
        if ready.iterator is not None:
            return ready
        self._numbers[key] += 1
        self._describe(loader, key)
        observer.mends.before_iter(loader, context)
        observer.context = context
        share(context)
        observer.log.write(
            "iter",
            loader=key,
            number=context.number,
            threads=_other_threads(),
            native_threads=_native_threads(),
            live=sum(_is_open(iterator) for iterator in list(self.live)),
            **self._changed(loader),
        )
        ready.began = time.monotonic()
        return ready

    @uncollected
    def _describe(self, loader: Any, key: str) -> None:
        """Once for each loader: what hangs on it."""
        if key in self.handles or len(self.handles) >= _MOST_LOADERS:
            return
        self.handles[key] = []
        fields = self.observer.makings.describe(loader, is_used=True)
        from penstock._lab.inside import things

        self.handles[key] = things.add(fields, loader)
        self.observer.log.write("loader", **fields)

    @uncollected
    def _changed(self, loader: Any) -> dict[str, Any]:
        """What the program has changed that persistent workers do not have, or would not have."""
        from penstock._lab.inside import attributes

        if not getattr(loader, "num_workers", 0):
            return {"changed": {}, "used": ()}
        found = attributes.changed(loader)
        return {"changed": found.all, "used": found.used}

    @quiet
    def failed(self, ready: Ready | None, error: BaseException) -> None:
        """iter(loader) raised."""
        if ready is None:
            self.observer.report(error, "start")
            return
        self._leave(ready)
        is_length = "__len__" in functions_of(error)
        phase = "pickle" if _is_pickling(error) else "length" if is_length else "start"
        context = ready.context
        self.observer.report(error, phase, loader=context.loader, iterator=context.number)
        self.observer.log.write(
            "ended", loader=context.loader, number=context.number, end="raised", batches=0, shutdown=None
        )
        self.observer.drive.broke(error)

    @quiet
    def started(self, ready: Ready | None, iterator: Any) -> Any:
        """iter(loader) returned."""
        if ready is None:
            return None
        self._leave(ready)
        context = ready.context
        old = iterator.__dict__.get(_PASS)
        if old is not None:  # persistent workers: the same iterator again
            old.drop()
        seen = Pass(self, context, ready.loader, iterator, ready.began)
        iterator.__dict__[_PASS] = seen
        self.live.add(iterator)
        for kind in type(iterator).__mro__:
            patch_next(kind)
        pids = [worker.pid for worker in getattr(iterator, "_workers", ()) if getattr(worker, "pid", None)]
        self.observer.log.write("started", loader=context.loader, number=context.number, workers=pids)
        self.observer.mends.started(ready.loader, iterator)
        return None

    def _leave(self, ready: Ready) -> None:
        self.observer.context = ready.before
        share(ready.before)


class Pass:
    """One pass over a loader."""

    def __init__(self, passes: Passes, context: Context, loader: Any, iterator: Any, began: float) -> None:
        self._passes = passes
        self._observer = passes.observer
        self._pid = os.getpid()
        self._context = context
        self._size = getattr(loader, "batch_size", None)
        self._has_workers = bool(getattr(loader, "num_workers", 0))
        self._is_batched = getattr(loader, "batch_sampler", None) is not None
        self.end = ""
        self.is_waiting = False
        self.batches = 0
        self.samples = 0
        self._since = began  # when the wait, or the step, began
        self._step = 0.0
        self._spent = 0.0
        self._told_at = 0.0
        self._facts: dict[str, Any] = {}
        self._refs: list[Any] = []  # to the batches that may still be held
        self._watched = 0  # batches that were looked at for being held
        self._untold = 0  # samples of batches that were not told
        self._shutdown: float | None = None
        self._is_done = False
        self._gone = weakref.ref(iterator, self._dropped)

    def wait(self) -> None:
        """The consumer asks for a batch."""
        self.is_waiting = True
        now = time.monotonic()
        self._step = now - self._since if self.batches else 0.0
        if self._is_told(now):
            self._say("next", batch=self.batches)
        self._spent = self._observer.spent
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether the plan or a mend ends the pass here."""
        observer = self._observer
        if not observer.drive.is_short(self.batches) and not observer.mends.is_over(self.batches):
            return False
        self.stopped(StopIteration())
        return True

    def _is_told(self, now: float) -> bool:
        return self._passes.told[self._context.loader] < FULL_BATCHES or now - self._told_at >= SPARSE_S

    def got(self, batch: Any) -> Any:
        """The batch is there."""
        now = time.monotonic()
        wait = max(0.0, now - self._since - (self._observer.spent - self._spent))
        self.is_waiting = False
        batch = self._see(batch, now, wait)
        self._since = time.monotonic()
        return batch

    def _see(self, batch: Any, now: float, wait: float) -> Any:
        observer = self._observer
        if observer.mends.has_batches:
            batch = observer.mends.arrived(batch)
        self._look(batch, now, wait)
        self.batches += 1
        self._passes.told[self._context.loader] += 1
        self._observe_enough()
        return batch

    @quiet
    def _observe_enough(self) -> None:
        self._observer.drive.batch(self._context)

    @quiet
    @uncollected
    def _look(self, batch: Any, now: float, wait: float) -> None:
        self._observer.seen_error = 0
        is_told = self._is_told(now)
        if self.batches < _LOOKED_AT or is_told or not self._facts:
            self._facts = batches.facts(batch, self._size, is_batched=self._is_batched)
        if is_told or self.batches < _HELD:
            self._refs.append(batches.references(batch))
            self._watched += 1
        self.samples += self._facts["samples"]
        self._untold += self._facts["samples"]
        if is_told:
            self._told_at = now
            self._tell(wait)
        if self.batches in _HANDLES_AT:
            self._look_at_handles()

    def _look_at_handles(self) -> None:
        """Whether files that were open before the fork were moved by workers."""
        handles = self._passes.handles.get(self._context.loader)
        if not handles or not self._has_workers:
            return
        for handle in handles:
            handle.thing["offset_moved"] = bool(handle.thing.get("offset_moved")) or handle.moved()
        self._say("things", things=[handle.thing for handle in handles])

    def _tell(self, wait: float) -> None:
        # This batch and the one before are held in any case: by us, and by the variable of the loop.
        self._refs = [*batches.kept(self._refs[:-2]), *self._refs[-2:]]
        kept = max(0, len(self._refs) - 2) * (self.batches + 1) // max(1, self._watched)
        fields = {**self._facts, "samples": self._untold, "kept": kept}
        self._untold = 0
        self._say("batch", batch=self.batches, wait=round(wait, 7), step=round(self._step, 7), **fields)

    @quiet
    def stopped(self, error: BaseException) -> None:
        """next() raised."""
        self.is_waiting = False
        if isinstance(error, StopIteration):
            self._finish("exhausted")
            return
        context = self._context
        self._observer.report(error, "next", loader=context.loader, iterator=context.number)
        iterator = self._gone()
        workers = getattr(iterator, "_workers", ())
        if workers and isinstance(error, (ConnectionError, EOFError)):
            from multiprocessing.connection import wait

            # The pipe of a worker breaks a moment before its end can be seen.
            wait([worker.sentinel for worker in workers], timeout=_REAPED_S)
        self._deaths(workers, getattr(iterator, "_workers_status", ()))
        self._finish("raised")
        self._observer.drive.broke(error)

    @quiet
    def shut(self, seconds: float, workers: Any) -> None:
        """The workers were shut down."""
        self._shutdown = round(seconds, 6)
        self._deaths(workers)

    def _deaths(self, workers: Any, expected: Any = ()) -> None:
        """Tell of workers that are gone; where one is still `expected` to work, status 0 is a death too."""
        for number, worker in enumerate(workers):
            status = getattr(worker, "exitcode", None)
            if status or (status == 0 and number < len(expected) and expected[number]):
                self._say("died", worker=number, child=worker.pid, status=status)

    @quiet
    def drop(self) -> None:
        """The program began the next pass before this one had ended."""
        self._finish("dropped")

    @quiet
    def _dropped(self, _gone: Any) -> None:
        if os.getpid() == self._pid:
            self._finish("dropped")

    def _finish(self, end: str) -> None:
        if self._is_done:
            return
        self._is_done, self.end = True, end
        self._look_at_handles()
        self._refs = []
        self._say("ended", end=end, batches=self.batches, samples=self.samples, shutdown=self._shutdown)
        self._observer.drive.ended(self._context, end, self.batches)

    def _say(self, kind: str, **fields: Any) -> None:
        self._observer.log.write(kind, loader=self._context.loader, number=self._context.number, **fields)


def _is_open(iterator: Any) -> bool:
    seen = iterator.__dict__.get(_PASS)
    return seen is not None and not seen.end


def _other_threads() -> list[str]:
    here = threading.get_ident()
    return [thread.name for thread in threading.enumerate() if thread.ident != here][:50]


def _native_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - one system call, no objects
    except OSError:
        return 0


def _is_pickling(error: BaseException) -> bool:
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename.endswith(f"multiprocessing{os.sep}reduction.py"):
            return True
        step = step.tb_next
    return False
