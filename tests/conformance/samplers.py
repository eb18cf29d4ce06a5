"""The samplers that the conformance tests feed to both loaders."""

from __future__ import annotations

import torch
from torch.utils.data import Sampler


class Reversed(Sampler):
    """A sampler written by hand."""

    def __init__(self, size: int = 10):
        self.size = size

    def __iter__(self):
        return iter(range(self.size - 1, -1, -1))

    def __len__(self):
        return self.size


class Growing(Sampler):
    """A batch sampler with batches of 1, 2, 3 ... indices."""

    def __iter__(self):
        yield [0]
        yield [1, 2]
        yield [3, 4, 5]
        yield [6, 7, 8, 9]

    def __len__(self):
        return 4


class CountingSampler(Sampler):
    """Remembers how often it was started and how far it was read."""

    def __init__(self, size: int = 20):
        self.size = size
        self.started = 0
        self.read = 0

    def __iter__(self):
        self.started += 1
        return self._indices()

    def _indices(self):
        for index in range(self.size):
            self.read += 1
            yield index

    def __len__(self):
        return self.size


class EagerSampler(Sampler):
    """Draws its whole permutation from the global generator as soon as `iter` is called."""

    def __iter__(self):
        return iter(torch.randperm(6).tolist())

    def __len__(self):
        return 6


class LazySampler(Sampler):
    """Draws each index from the global generator when it is asked for it."""

    def __iter__(self):
        for _ in range(12):
            yield int(torch.randint(10, ()))

    def __len__(self):
        return 12


class FailingSampler(Sampler):
    """Raises after five indices."""

    def __iter__(self):
        yield from range(5)
        raise LookupError("the sampler broke")

    def __len__(self):
        return 10
