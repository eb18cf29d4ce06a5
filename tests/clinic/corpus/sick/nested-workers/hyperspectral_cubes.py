# cause: nested-workers
"""Mineral mapping from hyperspectral cubes; continuum removal is spread over the bands."""
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHAPE = (24, 24, 60)


@dataclass
class RunConfig:
    cubes: int = 160
    minerals: int = 4
    batch_size: int = 8
    epochs: int = 2
    loader: dict = field(default_factory=lambda: {"num_workers": 2, "persistent_workers": True})
    threads: int = 1


def acquire(folder: Path, cfg: RunConfig):
    rng = np.random.default_rng(45)
    for k in range(cfg.cubes):
        m = k % cfg.minerals
        dip = 1 - 0.4 * np.exp(-((np.arange(SHAPE[2]) - 10 - 12 * m) / 4.0) ** 2)
        cube = rng.normal(0.6, 0.02, SHAPE) * dip
        np.savez(folder / f"cube{k:04d}.npz", cube=cube.astype(np.float16), mineral=m)


def remove_continuum(block):
    x = np.arange(block.shape[-1])
    flat = block.reshape(-1, block.shape[-1])
    ends = flat[:, :1] + (flat[:, -1:] - flat[:, :1]) * x / x[-1]
    time.sleep(0.001)
    return (flat / np.maximum(ends, 1e-3)).reshape(block.shape)


class ContinuumRemoval:
    def __init__(self, parts=4, parallel=True):
        self.parts, self.parallel = parts, parallel

    @cached_property
    def pool(self):
        return ProcessPoolExecutor(max_workers=2)

    def __call__(self, cube):
        blocks = np.array_split(cube, self.parts, axis=0)
        run = self.pool.map if self.parallel and cube.size > 20_000 else map
        return np.concatenate(list(run(remove_continuum, blocks)), axis=0)


class Cubes(Dataset):
    def __init__(self, folder: Path, preprocess):
        self.files = sorted(folder.glob("*.npz"))
        self.preprocess = preprocess

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as z:
            cube, mineral = z["cube"].astype(np.float32), int(z["mineral"])
        return torch.from_numpy(self.preprocess(cube).astype(np.float32)).permute(2, 0, 1).contiguous(), mineral


class Mapper(nn.Module):
    def __init__(self, minerals):
        super().__init__()
        self.spectral = nn.Conv2d(SHAPE[2], 32, 1)
        self.spatial = nn.Conv2d(32, 32, 3, padding=1, groups=8)
        self.head = nn.Linear(32, minerals)

    def forward(self, x):
        return self.head(self.spatial(self.spectral(x).relu()).relu().mean((2, 3)))


class Trainer:
    def __init__(self, cfg, data):
        self.cfg = cfg
        self.loader = DataLoader(data, cfg.batch_size, shuffle=True, **cfg.loader)
        self.model = Mapper(cfg.minerals)
        self.opt = torch.optim.Adam(self.model.parameters(), 3e-3)

    def step(self, x, y):
        out = self.model(x)
        loss = nn.functional.cross_entropy(out, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), (out.argmax(1) == y).float().mean().item()

    def run(self):
        for epoch in range(self.cfg.epochs):
            stats = np.array([self.step(x, y) for x, y in self.loader])
            print("epoch %d loss %.4f acc %.3f" % (epoch, *stats.mean(0)), flush=True)


def main(cfg=RunConfig()):
    torch.manual_seed(0)
    torch.set_num_threads(cfg.threads)
    with tempfile.TemporaryDirectory(prefix="cubes_") as tmp:
        acquire(Path(tmp), cfg)
        Trainer(cfg, Cubes(Path(tmp), ContinuumRemoval())).run()


if __name__ == "__main__":
    main()
