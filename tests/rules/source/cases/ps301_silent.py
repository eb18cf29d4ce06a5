# ruff: noqa
import itertools

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Divided(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        info = get_worker_info()
        yield from itertools.islice(self.paths, info.id, None, info.num_workers)


class Wrapped(IterableDataset):
    """What it wraps may divide itself."""

    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        for sample in self.stream:
            yield sample


class Noise(IterableDataset):
    def __iter__(self):
        for _ in range(100):
            yield torch.randn(3)


class Lines(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            yield path


def divide(worker):
    get_worker_info().dataset.paths = get_worker_info().dataset.paths[worker::2]


DataLoader(Divided(["a"]), num_workers=2)
DataLoader(Wrapped(["a"]), num_workers=2)
DataLoader(Noise(), num_workers=2)
DataLoader(Lines(["a"]), num_workers=1)
DataLoader(Lines(["a"]), num_workers=2, worker_init_fn=divide)
