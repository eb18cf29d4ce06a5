"""Tickets answered by the consumer itself, when it waits for them. No worker, no copy, no overlap."""

from __future__ import annotations

import contextlib
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
from penstock._engine.seeding import SampleSeeder

# Batches that "auto" makes to see what one costs; the first one pays for warming up.
TRIAL_BATCHES = 3


class InlineBackend:
    """Makes a batch when somebody waits for it."""

    def __init__(self, job: Job) -> None:
        self.is_asleep = False
        self._job = job
        self._tickets: deque[tuple[int, int, int, Any]] = deque()
        self._seeder = None if job.seed is None else SampleSeeder(job.seed, job.dataset)
        self._fetcher = self._begin_epoch(job.epoch)

    def _begin_epoch(self, epoch: int) -> Fetcher:
        if self._seeder is not None:
            self._seeder.begin_epoch(epoch)
        with self._apart():
            if self._seeder is not None and self._job.kind == _DatasetKind.Iterable:
                self._seeder.seed_stream(0)
            return Fetcher(self._job, self._job.dataset, seeder=self._seeder)

    def _apart(self) -> contextlib.AbstractContextManager[None]:
        """Around the dataset's code: with a seed, the program's own random numbers are not touched."""
        if self._seeder is None:
            return contextlib.nullcontext()
        return self._seeder.apart(is_stream=self._job.kind == _DatasetKind.Iterable)

    def send(self, worker: int, number: int, attempt: int, indices: Any) -> bool:
        """Note the ticket."""
        self._tickets.append((worker, number, attempt, indices))
        return True

    def wait(self, timeout_s: float | None) -> list[events.Event]:
        """Answer the oldest ticket now."""
        del timeout_s  # there is nobody to wait for
        worker, number, attempt, indices = self._tickets.popleft()
        try:
            with self._apart():
                payload: Any = (self._fetcher.fetch(indices), None)
        except StopIteration as end:
            if self._job.kind == _DatasetKind.Iterable:
                return [events.Exhausted(each) for each in range(self._job.workers)]
            payload = (None, end)
        except Exception as error:  # noqa: BLE001 - raised when its batch is due
            payload = (None, error)
        return [events.Answered(worker, number, attempt, payload, self._fetcher.bad)]

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

    def rewind(self, shared_seed: int | None, epoch: int = 0, attributes: tuple[Any, ...] = ()) -> None:
        """Begin the next epoch."""
        del shared_seed, attributes  # the dataset is the consumer's own
        self._tickets.clear()
        self._fetcher = self._begin_epoch(epoch)

    def judge(self, worker: int, *, is_sharded: bool) -> None:
        """Nobody waits for a verdict."""

    def find_stuck(self, workers: list[int]) -> int | None:
        """Nobody can be: there is no fork."""
        del workers
        return None

    def observe(self, worker: int) -> None:
        """Nothing: a worker in the consumer's own process cannot be seen from outside, nor ended."""

    def close(self) -> None:
        """Drop what is left."""
        self._tickets.clear()


class PlainFetcher:
    """Stands in torch's own iterator for its fetcher: the same batches, failures that name the sample."""

    def __init__(self, job: Job) -> None:
        self._fetcher = Fetcher(job, job.dataset)

    def fetch(self, indices: Any) -> Any:
        """The batch of a map-style dataset. A StopIteration of its own is an error, not the end."""
        try:
            return self._fetcher.fetch(indices)
        except StopIteration as end:
            raise failure.unpack(failure.describe(end, 0, self._fetcher.where())) from None
        except Exception as error:
            note = self._fetcher.where()
            if note and hasattr(error, "add_note"):  # Python 3.11
                error.add_note(note)
            raise
        finally:
            self._fetcher.forget()


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
