"""Workers as threads of the consumer: one dataset, no copy, no pickling.

For datasets that release the GIL (decoding, numpy, I/O) or on a free-threaded Python. All workers share the
dataset object and the process's random generators: what a sample draws depends on the timing, unlike with
processes. `get_worker_info()` answers in each thread for its own worker.

Guarantees:

* An answer is in the outbox before its worker takes the next ticket; the consumer wakes at once.
* `close` asks the threads to end and waits CLOSE_S. A thread cannot be killed: one that is inside a long
  sample ends after it, as a daemon that nobody waits for.

`wait` runs on the consumer's thread, `_serve` on the workers'.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

import torch.utils.data._utils.worker as torch_worker
from torch.utils.data.dataloader import _DatasetKind

from penstock._engine import events, failure
from penstock._engine.fetch import Fetcher
from penstock._engine.job import Job
from penstock.errors import WorkerLostError

CLOSE_S = 0.5

_local = threading.local()


class WorkerThread(threading.Thread):
    """A worker thread, with the names that a worker process has."""

    pid = None
    worker = 0

    @property
    def exitcode(self) -> int | None:
        """None while it runs, then 0."""
        return None if self.is_alive() else 0


class ThreadBackend:
    """The worker threads of one iterator."""

    def __init__(self, job: Job) -> None:
        self.is_asleep = False
        _answer_per_thread()
        self._job = job
        self._inboxes: list[SimpleQueue[Any]] = [SimpleQueue() for _ in range(job.workers)]
        self._outbox: SimpleQueue[events.Event] = SimpleQueue()
        self._is_closing = threading.Event()
        self.threads = [
            WorkerThread(target=self._serve, args=(worker,), name=f"penstock-worker-{worker}", daemon=True)
            for worker in range(job.workers)
        ]
        for thread in self.threads:
            thread.start()

    def send(self, worker: int, number: int, attempt: int, indices: Any) -> bool:
        """Give a ticket to a worker."""
        self._inboxes[worker].put((number, attempt, indices))
        return True

    def wait(self, timeout_s: float | None) -> list[events.Event]:
        """What has happened; waits for something up to `timeout_s`, then returns nothing."""
        try:
            heard = [self._outbox.get(timeout=timeout_s)]
        except Empty:
            return []
        while not self._outbox.empty():
            heard.append(self._outbox.get())  # only this thread takes from it
        return heard

    def open(self, payload: Any) -> Any:
        """The batch; or the exception, with its own type and the worker's traceback."""
        batch, error, note, worker = payload
        if error is not None:
            if isinstance(error, StopIteration):
                raise failure.unpack(failure.describe(error, worker, note))
            if note and hasattr(error, "add_note"):
                error.add_note(note)
            raise error
        return batch

    def discard(self, payload: Any) -> None:
        """Nothing to give back."""

    def rewind(self, shared_seed: int | None, epoch: int = 0, attributes: tuple[Any, ...] = ()) -> None:
        """Begin the next epoch in every worker."""
        del shared_seed, attributes  # the dataset is the consumer's own
        del epoch  # for the option `seed`, which threads refuse
        for inbox in self._inboxes:
            inbox.put(_REWIND)

    def judge(self, worker: int, *, is_sharded: bool) -> None:
        """Nobody waits for a verdict."""

    def find_stuck(self, workers: list[int]) -> int | None:
        """Nobody can be: there is no fork."""
        del workers
        return None

    def observe(self, worker: int) -> None:
        """Nothing: a worker in the consumer's own process cannot be seen from outside, nor ended."""

    def close(self) -> None:
        """Ask the threads to end, and wait a little. May be called twice."""
        self._is_closing.set()
        for inbox in self._inboxes:
            inbox.put(None)
        deadline = time.monotonic() + CLOSE_S
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    # ---- on the workers' threads ----------------------------------------------------------------

    def _serve(self, worker: int) -> None:
        job = self._job
        _local.info = torch_worker.WorkerInfo(
            id=worker, num_workers=job.workers, seed=job.base_seed + worker, dataset=job.dataset
        )
        state = _ThreadState()
        while (order := self._inboxes[worker].get()) is not None and not self._is_closing.is_set():
            if order is _REWIND:
                state.fetcher, state.has_ended = None, False
                self._outbox.put(events.Rewound(worker))
            elif not state.has_ended:
                self._outbox.put(self._answer(state, worker, *order))

    def _answer(
        self, state: _ThreadState, worker: int, number: int, attempt: int, indices: Any
    ) -> events.Event:
        job = self._job
        payload: Any
        try:
            if not state.is_started:
                state.is_started = True
                if job.init_fn is not None:
                    job.init_fn(worker)
            state.fetcher = state.fetcher or Fetcher(job, job.dataset)
            payload = (state.fetcher.fetch(indices), None, "", worker)
        except BaseException as error:  # noqa: BLE001 - raised in the consumer when its batch is due
            if isinstance(error, StopIteration) and job.kind == _DatasetKind.Iterable:
                state.has_ended = True
                return events.Exhausted(worker)
            if not isinstance(error, Exception):
                error = _left(worker, error, indices)
            payload = (None, error, state.fetcher.where() if state.fetcher else "", worker)
        bad = () if state.fetcher is None else state.fetcher.bad
        return events.Answered(worker, number, attempt, payload, bad)


class _ThreadState:
    """What one worker thread remembers between tickets."""

    def __init__(self) -> None:
        self.fetcher: Fetcher | None = None
        self.is_started = False
        self.has_ended = False


def _left(worker: int, reason: BaseException, indices: Any) -> WorkerLostError:
    return WorkerLostError(
        "PS601",
        f"DataLoader worker {worker} (a thread) exited unexpectedly: {reason!r}",
        why=f"it was loading sample indices {indices}",
        fix="raise an ordinary exception in the dataset",
    )


_REWIND = object()


def _answer_per_thread() -> None:
    """Make torch's `get_worker_info` answer for the calling thread.

    Programs hold references to that very function (`from torch.utils.data import get_worker_info`), so its
    code is exchanged, not its name. It answers as before in every thread that is not a worker of ours.
    """
    if hasattr(torch_worker, "_penstock_local"):
        return
    torch_worker._penstock_local = _local  # type: ignore[attr-defined]  # noqa: SLF001
    torch_worker.get_worker_info.__code__ = _get_worker_info.__code__


def _get_worker_info():  # type: ignore[no-untyped-def]  # noqa: ANN202 - runs with torch's globals
    return getattr(_penstock_local, "info", None) or _worker_info  # type: ignore[name-defined]  # noqa: F821
