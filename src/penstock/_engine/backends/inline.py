"""Tickets answered by the consumer itself, when it waits for them. No worker, no copy, no overlap."""

from __future__ import annotations

import random
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from torch.utils.data.dataloader import _DatasetKind

from penstock._engine import events, failure
from penstock._engine.fetch import Fetcher
from penstock._engine.job import Job

# Batches that "auto" makes to see what one costs; the first one pays for warming up.
TRIAL_BATCHES = 3


class InlineBackend:
    """Makes a batch when somebody waits for it."""

    def __init__(self, job: Job) -> None:
        self.is_asleep = False
        self._job = job
        self._fetcher = Fetcher(job, job.dataset)
        self._tickets: deque[tuple[int, int, int, Any]] = deque()

    def send(self, worker: int, number: int, attempt: int, indices: Any) -> bool:
        """Note the ticket."""
        self._tickets.append((worker, number, attempt, indices))
        return True

    def wait(self, timeout_s: float | None) -> list[events.Event]:
        """Answer the oldest ticket now."""
        del timeout_s  # there is nobody to wait for
        worker, number, attempt, indices = self._tickets.popleft()
        try:
            payload: Any = (self._fetcher.fetch(indices), None)
        except StopIteration as end:
            if self._job.kind == _DatasetKind.Iterable:
                return [events.Exhausted(each) for each in range(self._job.workers)]
            payload = (None, end)
        except Exception as error:  # noqa: BLE001 - raised when its batch is due
            payload = (None, error)
        return [events.Answered(worker, number, attempt, payload)]

    def open(self, payload: Any) -> Any:
        """The batch, or the exception, as it was raised."""
        batch, error = payload
        if isinstance(error, StopIteration):
            raise failure.unpack(failure.describe(error, 0, self._fetcher.where()))
        if error is not None:
            raise error
        return batch

    def discard(self, payload: Any) -> None:
        """Nothing to give back."""

    def rewind(self, shared_seed: int | None) -> None:
        """Begin the next epoch."""
        del shared_seed
        self._tickets.clear()
        self._fetcher = Fetcher(self._job, self._job.dataset)

    def find_stuck(self, workers: list[int]) -> int | None:
        """Nobody can be: there is no fork."""
        del workers
        return None

    def observe(self, worker: int) -> None:
        """Nothing: a worker in the consumer's own process cannot be seen from outside, nor ended."""

    def close(self) -> None:
        """Drop what is left."""
        self._tickets.clear()


def time_of_a_batch(job: Job, indices: list[Any]) -> float | None:
    """Seconds that a batch takes in the consumer, or None when none could be made.

    The batches are thrown away and made again later; the global random generators are put back, so that
    the trial cannot be seen in what the program draws.
    """
    fetcher = Fetcher(job, job.dataset)
    states = (random.getstate(), np.random.get_state(), torch.get_rng_state())
    times = []
    try:
        for each in indices:
            start = time.perf_counter()
            fetcher.fetch(each)
            times.append(time.perf_counter() - start)
    except Exception:  # noqa: BLE001 - the real pass will meet it, and report it properly
        return None
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
    return min(times, default=None)
