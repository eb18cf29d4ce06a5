"""What the death of a worker means for an iterable dataset, whose place in the stream was known to it alone.

    the dataset has state_dict, load_state_dict   a fresh worker loads the state that came with the last
    answer on_iterable_crash="replay"                    a fresh worker starts anew, and drops what had been
    answered nothing had been answered yet                 a fresh worker starts anew
    else                                          an error: whatever we did might lose or repeat samples

`Journal` is pure; `state_of` and `load` run in the worker.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from penstock.errors import WorkerLostError

# A state goes home with every answer: a larger one would cost more than it is worth.
MOST_BYTES = 64 << 10


class Resume(NamedTuple):
    """Where a fresh worker takes up the stream of a lost one."""

    state: bytes | None  # to load before the stream is begun
    tickets: int  # to draw and drop, after it has begun
    indices: Any  # of one such ticket: how many samples it takes
    is_sharded: bool  # the loader divides the stream (cure=True)


class Journal:
    """What each worker has answered in this epoch, and where that left its stream."""

    def __init__(self, workers: int, on_crash: str = "raise") -> None:
        """`on_crash` is the option `on_iterable_crash`."""
        self._workers = workers
        self._on_crash = on_crash
        self.begin()

    def begin(self) -> None:
        """A new epoch."""
        self._answered = [0] * self._workers
        self._states: list[bytes | None] = [None] * self._workers

    def answered(self, worker: int, state: bytes | None) -> None:
        """A ticket was answered and accepted; call it in the order of the worker's answers."""
        self._answered[worker] += 1
        self._states[worker] = state

    def plan(self, worker: int, indices: Any, *, is_sharded: bool = False) -> Resume:
        """How a fresh worker goes on in the place of this one, which is lost; WorkerLostError: it cannot.

        Args:
            worker: the one that is lost.
            indices: what a ticket of this loader holds, to know how many samples it takes.
            is_sharded: whether the loader divides the stream among the workers.

        """
        answered, state = self._answered[worker], self._states[worker]
        if state is not None or not answered:
            return Resume(state, 0, indices, is_sharded)
        if self._on_crash == "replay":
            return Resume(None, answered, indices, is_sharded)
        raise WorkerLostError(
            "PS607",
            f"worker {worker} died, and nobody knows where its iterable dataset was",
            why=f"it had delivered {answered} batch{'es' if answered > 1 else ''} of this epoch, and no "
            "state with the last of them",
            fix="give the dataset `state_dict()` and `load_state_dict(state)`, to go on from there; or, if a "
            "worker's stream is the same each time it is started, pass on_iterable_crash='replay'",
        )


# ---- in the worker ------------------------------------------------------------------------------


def has_state(dataset: Any) -> bool:
    """Whether a dataset can say where it is, and be put there."""
    return callable(getattr(dataset, "state_dict", None)) and callable(
        getattr(dataset, "load_state_dict", None)
    )


def state_of(dataset: Any) -> bytes | None:
    """Where the dataset is now; None when it cannot tell, or not in so few bytes."""
    try:
        data = pickle.dumps(dataset.state_dict(), 5)
    except Exception:  # noqa: BLE001 - the user's method: without it there is no state, that is all
        return None
    return data if len(data) <= MOST_BYTES else None


def load(dataset: Any, resume: Resume) -> None:
    """Put the dataset where the lost worker's was. Before `iter`."""
    if resume.state is not None:
        dataset.load_state_dict(pickle.loads(resume.state))
