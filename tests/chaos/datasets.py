"""Datasets of the chaos tests: small, with content that tells what it should be."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import torch
from torch.utils.data import Dataset, IterableDataset


def say(*words: object) -> None:
    """Print a line in one piece, at once, whoever else prints."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


# Large enough for a slab of its own: smaller batches are copied out of it at once.
SIDE = 128


def picture(index: int) -> torch.Tensor:
    """What sample `index` looks like: 64 KiB in which every element depends on the index."""
    return torch.arange(SIDE * SIDE, dtype=torch.float32).view(SIDE, SIDE).add_(index * 31)


def is_right(batch: torch.Tensor, indices) -> bool:
    """Whether a batch of pictures is exactly what it should be."""
    return torch.equal(batch, torch.stack([picture(int(index)) for index in indices]))


class Pictures(Dataset):
    """Samples of 64 KiB."""

    def __init__(self, length: int = 16) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return picture(index)


class Numbers(Dataset):
    """Samples of a few bytes."""

    def __init__(self, length: int = 16) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Sleepers(Pictures):
    """Samples from `awake` on never come: the worker sleeps."""

    def __init__(self, length: int = 16, awake: int = 0) -> None:
        super().__init__(length)
        self.awake = awake

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.awake:
            say("asleep")
            self.sleep()
        return picture(index)

    def sleep(self) -> None:
        time.sleep(1000)


class DeepSleepers(Sleepers):
    """The same inside a C function that does not let Python's signal handlers run."""

    def sleep(self) -> None:
        ctypes.PyDLL(None).sleep(1000)  # holds the GIL


class Stream(IterableDataset):
    """Every worker yields its own numbers."""

    def __init__(self, length: int = 8) -> None:
        self.length = length

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first = 1000 * info.id if info is not None else 0
        return iter(range(first, first + self.length))


class Deadly(Pictures):
    """One sample ends its worker in a way that Python cannot catch."""

    def __init__(self, how: str, index: int = 5, length: int = 16) -> None:
        super().__init__(length)
        self.how, self.index = how, index

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.index:
            die(self.how)
        return picture(index)


def die(how: str) -> None:
    """End this process."""
    if how == "os._exit(0)":
        os._exit(0)
    if how == "os._exit(7)":
        os._exit(7)
    if how == "sys.exit(3)":
        raise SystemExit(3)
    if how == "abort":
        os.abort()
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), getattr(signal, how))
    signal.pause()
