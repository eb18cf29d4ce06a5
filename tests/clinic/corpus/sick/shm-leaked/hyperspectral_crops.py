# cause: shm-leaked
"""Crop-type classification on hyperspectral tiles.

Tiles travel from the workers to the trainer through named shared memory (see TileExchange), so that
the 64-band cubes are not pickled.
"""
import os
import time
from multiprocessing import resource_tracker, shared_memory
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, TILE, CROPS = 64, 32, 9


class TileRef(NamedTuple):
    name: str
    shape: tuple
    dtype: str


class TileExchange:
    """put() in a worker, get() in the trainer."""

    def __init__(self, prefix="tile"):
        self.prefix = prefix
        self.serial = 0

    @staticmethod
    def _untrack(shm):
        # bpo-38119: the tracker of a finished worker would remove tiles that are still on their way
        resource_tracker.unregister(shm._name, "shared_memory")

    def put(self, cube):
        self.serial += 1
        shm = shared_memory.SharedMemory(create=True, size=cube.nbytes, name=f"{self.prefix}_{os.getpid()}_{self.serial}")
        self._untrack(shm)
        np.ndarray(cube.shape, cube.dtype, buffer=shm.buf)[:] = cube
        ref = TileRef(shm.name, cube.shape, str(cube.dtype))
        shm.close()
        return ref

    def get(self, ref):
        shm = shared_memory.SharedMemory(name=ref.name)
        self._untrack(shm)
        view = np.ndarray(ref.shape, np.dtype(ref.dtype), buffer=shm.buf)
        cube = torch.from_numpy(view.copy())
        del view
        shm.close()
        return cube


class FieldTiles(Dataset):
    def __init__(self, n, seed, exchange):
        self.n, self.seed, self.exchange = n, seed, exchange
        self.signatures = np.random.default_rng(99).random((CROPS, BANDS), dtype=np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        crop = int(rng.integers(CROPS))
        cube = self.signatures[crop][:, None, None] + rng.standard_normal((BANDS, TILE, TILE), dtype=np.float32) * 0.3
        return self.exchange.put(cube), crop


def collate_refs(batch):
    refs, crops = zip(*batch)
    return list(refs), torch.tensor(crops)


class SpectralNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(BANDS, 96, 3, padding=1), nn.ReLU(), nn.Conv2d(96, 96, 3, padding=1), nn.ReLU(),
                               nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, CROPS))

    def forward(self, x):
        return self.f(x)


class Runner:
    def __init__(self, epochs=5, batch=8):
        self.exchange = TileExchange()
        self.epochs = epochs
        self.train_loader = DataLoader(FieldTiles(240, 1, self.exchange), batch, shuffle=True, num_workers=2, collate_fn=collate_refs)
        self.val_loader = DataLoader(FieldTiles(48, 2, self.exchange), batch, num_workers=1, collate_fn=collate_refs)
        self.net = SpectralNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4)

    def cubes(self, refs):
        return torch.stack([self.exchange.get(r) for r in refs])

    def fit(self):
        for epoch in range(self.epochs):
            t0, seen, good = time.time(), 0, 0
            self.net.train()
            for refs, crops in self.train_loader:
                loss = nn.functional.cross_entropy(self.net(self.cubes(refs)), crops)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            self.net.eval()
            with torch.no_grad():
                for refs, crops in self.val_loader:
                    good += (self.net(self.cubes(refs)).argmax(1) == crops).sum().item()
                    seen += len(crops)
            print(f"epoch {epoch} loss {loss.item():.4f} val acc {good / seen:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    Runner().fit()
