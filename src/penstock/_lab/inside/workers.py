"""A worker's life: its loop, its init function, and the thread that feeds its batches into the pipe.

Works whatever the start method: forked workers inherit our functions, others put them in place when they
import torch themselves, and then look up torch's loop by its name, which is ours.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from penstock._lab.inside.frames import unwind
from penstock._lab.inside.observer import Context, Observer, shared
from penstock._lab.inside.quiet import lost, quiet


def install(observer: Observer, module: Any) -> None:
    """Put our functions around torch's and multiprocessing's."""
    worker: Any = module._utils.worker  # noqa: SLF001 - torch's own names, here and below
    _patch_loop(observer, worker)
    _patch_feeder(observer)


def _patch_loop(observer: Observer, worker: Any) -> None:
    original = worker._worker_loop  # noqa: SLF001
    names = list(inspect.signature(original).parameters)

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        args = _begin(observer, names, args, kwargs) or args
        try:
            done = original(*args, **kwargs)
        except BaseException as error:
            unwind(error)
            raise
        _end(observer)
        return done

    worker._worker_loop = _worker_loop  # noqa: SLF001


@quiet
def _begin(observer: Observer, names: list[str], args: Any, kwargs: Any) -> Any:
    """The worker begins; its arguments, with an init function that is watched."""
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    number = given.get("worker_id", 0)
    context = shared(number)
    observer.context = context
    if context is None:
        return None
    observer.begin_worker()
    observer.log.write("worker", **_place(context), event="begins")
    observer.mends.in_worker(given.get("dataset"))
    if given.get("init_fn") is None or "init_fn" in kwargs:
        return None
    place = names.index("init_fn")
    return (*args[:place], _watched(observer, args[place], context), *args[place + 1 :])


def _watched(observer: Observer, init_fn: Any, context: Context) -> Any:
    @functools.wraps(init_fn, updated=())
    def watched(worker_id: int) -> Any:
        try:
            return init_fn(worker_id)
        except BaseException as error:
            _init_failed(observer, error, context)
            unwind(error)
            raise

    return watched


@quiet
def _init_failed(observer: Observer, error: BaseException, context: Context) -> None:
    place = {"loader": context.loader, "iterator": context.number, "worker": context.worker}
    observer.report(error, "init", **place)


@quiet
def _end(observer: Observer) -> None:
    if observer.context is not None:
        observer.log.write("worker", **_place(observer.context), event="ends", lost=lost)


def _place(context: Context) -> dict[str, Any]:
    return {"loader": context.loader, "number": context.number, "worker": context.worker}


def _patch_feeder(observer: Observer) -> None:
    from multiprocessing.queues import Queue

    original = getattr(Queue, "_on_queue_feeder_error", None)
    if original is None:
        return

    @functools.wraps(original)
    def _on_queue_feeder_error(error: Any, item: Any) -> Any:
        _feeder_failed(observer, error, item)
        return original(error, item)

    Queue._on_queue_feeder_error = staticmethod(_on_queue_feeder_error)  # type: ignore[attr-defined]  # noqa: SLF001


@quiet
def _feeder_failed(observer: Observer, error: BaseException, item: Any) -> None:
    """A batch was lost: it could not be put into the pipe."""
    from penstock._lab.inside.frames import failure

    context = observer.context or Context("", 0)
    place = {"loader": context.loader, "iterator": context.number, "worker": context.worker}
    number, batch = item if isinstance(item, tuple) and len(item) == 2 else (None, item)  # noqa: PLR2004
    observer.log.write(
        "failed", **failure(error), phase="feeder", **place, index=number, **_unpicklable(batch)
    )


def _unpicklable(batch: Any) -> dict[str, str]:
    """What in the batch, or in the exception that stands in its place, cannot be pickled."""
    from penstock._engine.unpicklable import find_unpicklable
    from penstock._lab.inside.pickling import dumps

    kind = type(batch).__name__
    if kind == "ExceptionWrapper":
        told = getattr(batch, "exc_type", None)
        return {
            "field": "exception",
            "note": f"{getattr(told, '__qualname__', told)}: {getattr(batch, 'exc_msg', '')}"[:2000],
        }
    path, what = find_unpicklable(batch, "batch", dumps)
    return {"field": path, "note": f"{path} {what}"}
