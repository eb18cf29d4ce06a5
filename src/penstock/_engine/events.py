"""What the runtime is told by a backend."""

from __future__ import annotations

from typing import Any, NamedTuple


class Answered(NamedTuple):
    """A ticket was answered; `payload` is the backend's own, to be opened or discarded by it."""

    worker: int
    number: int
    attempt: int
    payload: Any
    bad: tuple[Any, ...] = ()  # bad_samples.BadSample, as their fields


class Exhausted(NamedTuple):
    """A worker's iterable dataset has ended for this epoch."""

    worker: int


class WorkerLost(NamedTuple):
    """A worker is gone; `status` is its exit status, negative for a signal."""

    worker: int
    pid: int
    status: int


class Rewound(NamedTuple):
    """A worker is ready for the next epoch."""

    worker: int


EMPTY: Any = object()  # what a backend opens when no sample of the batch is left

Event = Answered | Exhausted | WorkerLost | Rewound
