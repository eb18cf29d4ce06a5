"""Looks at the first samples that a worker makes in an epoch, and then steps out of the way.

Guarantees:

* Samples, their order and the moment at which they are made stay as they are, except in `look_ahead`, which a
  loader asks for with cure=True.
* After the last sample watched nothing of it is left between the dataset and the fetcher.

Runs in the worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from penstock._engine import unsharded
from penstock._engine.rng_objects import RngSign, RngWatch

# Samples, or calls of `__getitems__`, of a map-style dataset that are watched.
ITEMS = 4


class Watch:
    """What one worker sees in one epoch."""

    def __init__(self, rngs: RngWatch | None, *, is_iterable: bool) -> None:
        """`rngs` follows the generators of the dataset, if it has any."""
        self._rngs = rngs
        self._is_iterable = is_iterable
        self._calls = 0
        self._nbytes = 0
        self.prefix: list[bytes] = []
        self.ahead: list[Any] = []  # samples that were made before they were asked for, the first one last
        self.is_done = False

    def see(self, sample: Any) -> None:
        """The dataset has made a sample."""
        self._calls += 1
        if self._rngs is not None and self._calls <= ITEMS:
            self._rngs.see()
        if self._is_iterable:
            digest, nbytes = unsharded.digest(sample)
            self.prefix.append(digest)
            self._nbytes += nbytes
            self.is_done = unsharded.is_enough(self.prefix, self._nbytes)
        else:
            self.is_done = self._calls >= ITEMS

    def signs(self) -> tuple[tuple[bytes, ...], tuple[RngSign, ...]]:
        """What was seen: digests of samples, and the generators."""
        return tuple(self.prefix), () if self._rngs is None else self._rngs.signs()

    def look_ahead(self, stream: Iterator[Any]) -> Iterator[Any]:
        """Make the first samples now; return a stream that yields them, then the rest."""
        taken = self.ahead
        failure: Exception | None = None
        while not self.is_done:
            try:
                taken.append(next(stream))
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - raised again in its place
                failure = error
                break
            self.see(taken[-1])
        self.is_done = True
        taken.reverse()
        return itertools.chain(_again(taken, failure), stream)


def _again(taken: list[Any], failure: Exception | None) -> Iterator[Any]:
    while taken:
        yield taken.pop()
    if failure is not None:
        raise failure


class WatchedStream:
    """The iterator of a dataset, watched."""

    def __init__(self, stream: Iterator[Any], watch: Watch) -> None:
        self.stream = stream
        self._watch = watch

    def __iter__(self) -> WatchedStream:
        return self

    def __next__(self) -> Any:
        try:
            sample = next(self.stream)
        except StopIteration:
            self._watch.is_done = True
            raise
        if not self._watch.is_done:
            self._watch.see(sample)
        return sample


class WatchedItems:
    """A map-style dataset, watched."""

    def __init__(self, dataset: Any, watch: Watch) -> None:
        self.dataset = dataset
        self._watch = watch
        if getattr(dataset, "__getitems__", None):
            self.__getitems__ = self._get_items

    def __getitem__(self, index: Any) -> Any:
        sample = self.dataset[index]
        if not self._watch.is_done:
            self._watch.see(sample)
        return sample

    def _get_items(self, indices: Any) -> Any:
        samples = self.dataset.__getitems__(indices)
        if not self._watch.is_done:
            self._watch.see(samples)
        return samples
