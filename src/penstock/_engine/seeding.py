"""Random numbers that belong to the sample: the option `seed`.

Before each sample every generator that it may draw from is reset: those of `random`, numpy and torch (on
the CPU), and those that the dataset keeps (see `generators`). The seed is a mix of 64 bits of (seed, epoch,
index), so what a sample draws depends neither on the worker that makes it, nor on what that worker made
before, nor on how often it was begun. The collate function gets the same treatment, with the first index of
its batch.

Guarantees:

* Equal (seed, epoch, index) give equal streams in every process, on every platform; the epochs of one seed
  and the generators of one sample have streams of their own.
* `apart` leaves every generator as it was, whatever is drawn inside.

Runs wherever samples are made: in a worker, or, inline, on the consumer's thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import torch
from torch.utils.data import Subset

from penstock._engine import generators
from penstock._engine.generators import Rng

_BITS_64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # the step of splitmix64, and its two multipliers
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def mix(value: int) -> int:
    """splitmix64's finisher: 64 bits to 64 bits, one to one, each bit of the result from all of the value."""
    value &= _BITS_64
    value = (value ^ value >> 30) * _FIRST & _BITS_64
    value = (value ^ value >> 27) * _SECOND & _BITS_64
    return value ^ value >> 31


def derive(seed: int, epoch: int, purpose: str) -> int:
    """64 bits for one purpose in one epoch."""
    told = f"{seed} {epoch} {purpose}".encode()
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "little")


def generator_for(seed: int, epoch: int, purpose: str) -> torch.Generator:
    """A generator of the consumer's own, such as the one that decides the order."""
    generator = torch.Generator()
    generator.manual_seed(derive(seed, epoch, purpose))
    return generator


def number_of(index: Any) -> int:
    """Any index as a number: integers, numpy's and torch's too, as themselves, others by their `repr`."""
    try:
        return int(index.__index__())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        told = repr(index).encode("utf-8", "backslashreplace")
        return int.from_bytes(blake2b(told, digest_size=8).digest(), "little")


class SampleSeeder:
    """Resets the generators of one process for one dataset."""

    def __init__(self, seed: int, dataset: Any) -> None:
        self._seed = seed
        self._dataset = dataset
        self._globals = generators.of_the_process()
        self._resets = tuple(rng.reset for rng in self._globals)
        self._own: list[Rng] = []
        self._stream: list[tuple[Rng, Any]] | None = None
        self.find_more()
        self.begin_epoch(0)

    def find_more(self) -> bool:
        """Look for generators that the dataset has made in the meantime; whether there are any."""
        before, self._own = self._own, generators.find(self._dataset)
        known = {id(rng.owner) for rng in before}
        return any(id(rng.owner) not in known for rng in self._own)

    def begin_epoch(self, epoch: int) -> None:
        """What follows belongs to this epoch."""
        self._sample_key = derive(self._seed, epoch, "sample")
        self._collate_key = derive(self._seed, epoch, "collate")
        self._stream_key = derive(self._seed, epoch, "stream")
        self._stream = None

    def seed(self, index: Any) -> None:
        """Before a sample of a map-style dataset."""
        # Called for every sample: an int, which it nearly always is, takes the short way.
        number = index if type(index) is int else number_of(index)
        value = (self._sample_key + number * _GOLDEN) & _BITS_64  # `mix`, without the call
        value = (value ^ value >> 30) * _FIRST & _BITS_64
        value = (value ^ value >> 27) * _SECOND & _BITS_64
        value ^= value >> 31
        for reset in self._resets:
            reset(value)
        if self._own:
            for rng in self._own:
                rng.reset(mix(value ^ rng.key))

    def seed_collate(self, first: Any) -> None:
        """Before the batch whose first index this is gets collated."""
        self._reset_all(self._collate_key + number_of(first) * _GOLDEN)

    def seed_stream(self, worker: int) -> None:
        """Before this worker's pass over an iterable dataset."""
        self._reset_all(self._stream_key + worker * _GOLDEN)

    @contextlib.contextmanager
    def apart(self, *, is_stream: bool = False) -> Iterator[None]:
        """What is drawn and seeded in here leaves no trace outside; a stream goes on at the next entry.

        torch has one thread in here, as in a worker: a sum over several threads has other last bits.
        """
        before, threads = self._saved(), torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            for rng, state in self._stream or ():
                rng.restore(state)
            yield
        finally:
            if is_stream:
                self._stream = self._saved()
            for rng, state in before:
                rng.restore(state)
            torch.set_num_threads(threads)

    def wrap(self, dataset: Any) -> Any:
        """A map-style dataset that seeds before each sample, or before each `__getitems__`."""
        if not getattr(dataset, "__getitems__", None) or _goes_one_by_one(dataset):
            return SeededSamples(self, dataset)
        return SeededBatches(self, dataset)

    def _reset_all(self, value: int) -> None:
        value = mix(value)
        for reset in self._resets:
            reset(value)
        for rng in self._own:
            rng.reset(mix(value ^ rng.key))

    def _saved(self) -> list[tuple[Rng, Any]]:
        return [(rng, rng.save()) for rng in (*self._globals, *self._own)]


class SeededSamples:
    """A map-style dataset behind a seeder."""

    def __init__(self, seeder: SampleSeeder, dataset: Any) -> None:
        self._seeder = seeder
        self._seed = seeder.seed
        self._dataset = dataset
        self._is_new = True

    def __getitem__(self, index: Any) -> Any:
        self._seed(index)
        sample = self._dataset[index]
        if self._is_new:
            self._is_new = False
            # Many datasets make their generator at the first sample, in the worker, and not to a seed of
            # ours: then that sample is made again.
            if self._seeder.find_more():
                self._seed(index)
                sample = self._dataset[index]
        return sample


class SeededBatches(SeededSamples):
    """The same for a dataset that is asked for whole batches: there is no telling its samples apart."""

    def __getitems__(self, indices: Any) -> Any:
        first = first_of(indices)
        self._seed(first)
        samples = self._dataset.__getitems__(indices)
        if self._is_new:
            self._is_new = False
            if self._seeder.find_more():
                self._seed(first)
                samples = self._dataset.__getitems__(indices)
        return samples


def first_of(indices: Any) -> Any:
    """The first index of a batch."""
    if isinstance(indices, (list, tuple)):
        return indices[0] if indices else None
    return next(iter(indices), None)


def _goes_one_by_one(dataset: Any) -> bool:
    """Whether its `__getitems__` is torch's for subsets, and ends in single samples anyway."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
        if not getattr(dataset, "__getitems__", None):
            return True
    return False
