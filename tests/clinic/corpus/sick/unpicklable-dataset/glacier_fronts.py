# cause: unpicklable-dataset
"""Calving-front position from radar strips. Acquisitions of several satellites are concatenated."""
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset


@dataclasses.dataclass
class Config:
    strips: int = 90
    width: int = 256
    rows: int = 32
    batch: int = 10
    workers: int = 2
    epochs: int = 2
    lr: float = 2e-3
    start_method: str = "spawn"
    satellites: tuple = ("ers", "envisat", "s1")


def speckle(looks):
    """Multiplicative noise of a sensor with so many looks."""
    def apply(strip):
        return strip * np.random.gamma(looks, 1.0 / looks, strip.shape).astype(np.float32)
    return apply


def to_decibel(strip):
    return 10 * np.log10(np.maximum(strip, 1e-4))


class Chain:
    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, strip):
        for step in self.steps:
            strip = step(strip)
        return strip


PROCESSING = {
    "ers": Chain(to_decibel),
    "envisat": Chain(to_decibel),
    "s1": Chain(speckle(4), to_decibel),
}


class Acquisitions(Dataset):
    def __init__(self, folder, satellite):
        self.files = sorted(Path(folder).glob(f"{satellite}_*.npy"))
        self.process = PROCESSING[satellite]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        packed = np.load(self.files[i])
        strip, front = packed[:-1], packed[-1, 0]
        for _ in range(6):
            strip = (strip + np.roll(strip, 1, 0) + np.roll(strip, -1, 0)) / 3
        return torch.from_numpy(self.process(strip).astype(np.float32)[None]), torch.tensor(front / strip.shape[1])


def acquire(folder, cfg):
    rng = np.random.default_rng(8)
    for sat in cfg.satellites:
        for i in range(cfg.strips // len(cfg.satellites)):
            front = rng.integers(40, cfg.width - 40)
            strip = rng.gamma(2, 0.1, (cfg.rows + 1, cfg.width)).astype(np.float32)
            strip[:-1, :front] += 1.0
            strip[-1, 0] = front
            np.save(Path(folder) / f"{sat}_{i:03d}.npy", strip)


class FrontNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 5, 2, 2), nn.ReLU(), nn.Conv2d(8, 1, 5, 2, 2))
        self.readout = nn.Linear(64, 1)

    def forward(self, x):
        return self.readout(self.features(x).mean((1, 2))).squeeze(1)


def split(data, every=6):
    held = [i for i in range(len(data)) if i % every == 0]
    return Subset(data, [i for i in range(len(data)) if i % every]), Subset(data, held)


def fit(cfg, folder):
    everything = ConcatDataset([Acquisitions(folder, s) for s in cfg.satellites])
    train, held = split(everything)
    loader = DataLoader(train, cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True)
    model = FrontNet()
    opt = torch.optim.Adam(model.parameters(), cfg.lr)
    for epoch in range(cfg.epochs):
        for x, y in loader:
            loss = (model(x) - y).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            error = np.mean([(model(x) - y).abs().mean().item() for x, y in DataLoader(held, cfg.batch)])
        print(f"epoch {epoch} train {loss.item():.4f} held-out {error:.4f}", flush=True)


if __name__ == "__main__":
    config = Config()
    mp.set_start_method(config.start_method)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        acquire(tmp, config)
        fit(config, tmp)
