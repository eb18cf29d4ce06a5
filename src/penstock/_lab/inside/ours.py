"""The same looks at our own loader, where a trial puts it in torch's place.

A comparison of speed would not be fair if only torch's workers had an observer in them.
"""

from __future__ import annotations

import functools
from typing import Any

from penstock._lab.inside import fetches
from penstock._lab.inside.frames import unwind
from penstock._lab.inside.observer import Observer
from penstock._lab.inside.quiet import quiet

_WATCH = "_penstock_fetch"


def install(observer: Observer) -> None:
    """Put our functions around those of the engine's fetcher."""
    from penstock._engine.fetch import Fetcher

    kind: Any = Fetcher
    begin, fetch = kind.__init__, kind.fetch

    @functools.wraps(begin)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        begin(self, *args, **kwargs)
        _begin(observer, self)

    @functools.wraps(fetch)
    def watched(self: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        watch, seat = self.__dict__.get(_WATCH, (None, None))
        if watch is None:
            return fetch(self, indices, *args, **kwargs)
        watch.begin(seat, indices)
        try:
            batch = fetch(self, indices, *args, **kwargs)
        except BaseException as error:
            watch.restore(seat)
            watch.failed(error)
            unwind(error)
            raise
        watch.restore(seat)
        watch.done(batch)
        return batch

    kind.__init__, kind.fetch = __init__, watched


class _Seat:
    """The engine's fetcher, with the names that torch's has."""

    def __init__(self, fetcher: Any) -> None:
        self._fetcher = fetcher
        self.collate_fn = None  # the job's, which cannot be exchanged: its time is part of the batch's

    @property
    def dataset(self) -> Any:
        return self._fetcher._dataset  # noqa: SLF001 - the engine's own, here and below

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self._fetcher._dataset = dataset  # noqa: SLF001

    @property
    def dataset_iter(self) -> Any:
        return self._fetcher._iterator  # noqa: SLF001

    @dataset_iter.setter
    def dataset_iter(self, stream: Any) -> None:
        self._fetcher._iterator = stream  # noqa: SLF001


class _StreamSeat(_Seat):
    """The same over an iterable dataset."""


class _MapSeat(_Seat):
    """The same over a map-style one."""


@quiet
def _begin(observer: Observer, fetcher: Any) -> None:
    from torch.utils.data import get_worker_info

    context, info = observer.context, get_worker_info()
    if context is None:
        return
    if info is not None:
        if not observer.fetchers:
            observer.begin_worker()
        context = context._replace(worker=info.id, number=context.number + observer.fetchers)
    is_stream = fetcher._iterator is not None  # noqa: SLF001
    seat = _StreamSeat(fetcher) if is_stream else _MapSeat(fetcher)
    fetcher.__dict__[_WATCH] = (fetches.Fetches(observer, context, seat), seat)
    if info is not None:
        fetches.begin_pass(observer, context, seat.dataset, None)
