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
    state: bytes | None = None  # where this left an iterable dataset, if it can tell


class Exhausted(NamedTuple):
    """A worker's iterable dataset has ended for this epoch."""

    worker: int


class WorkerLost(NamedTuple):
    """A worker is gone; `status` is its exit status, negative for a signal. The rest is its black box's."""

    worker: int
    pid: int
    status: int
    number: int | None = None  # the ticket that it had in hand, and which attempt of it
    attempt: int | None = None
    position: int | None = None  # the sample that it was at, in its batch
    index: int | None = None  # type: ignore[assignment]  # the same, as the dataset was asked for it, if an int
    phase: str = ""
    stack: str = ""
    was_oom: bool = False  # the kernel has killed somebody here for want of memory
    reason: str = ""  # why we have killed it ourselves


class Rewound(NamedTuple):
    """A worker is ready for the next epoch."""

    worker: int


RETIRED = "retired"  # the reason of a `WorkerLost`: it had grown too large, and left by itself
EMPTY: Any = object()  # what a backend opens when no sample of the batch is left


class Noticed(NamedTuple):
    """A worker tells what it saw in its first samples of the epoch; `signs` are the fields of the message."""

    worker: int
    signs: Any


Event = Answered | Exhausted | WorkerLost | Rewound | Noticed
