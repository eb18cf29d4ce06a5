# cause: rng-repeated
# arguments: --seed 77 --epochs 3
"""Bearing fault detection from accelerometer traces with jitter, scaling and time-warp augmentation."""
import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RPM = (900, 1200, 1800, 2400)


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Reproducible:
    """Fixes the seeds, so that two runs agree."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, worker_id):
        seed_everything(self.seed)


def jitter(x):
    return x + np.random.normal(0, 0.2, x.shape)


def scale(x):
    return x * np.random.lognormal(0, 0.3)


def warp(x):
    knots = np.cumsum(np.random.uniform(0.5, 1.5, 9))
    knots = (knots - knots[0]) / (knots[-1] - knots[0]) * (len(x) - 1)
    at = np.interp(np.arange(len(x)), np.linspace(0, len(x) - 1, 9), knots)
    return np.interp(at, np.arange(len(x)), x)


class OneOf:
    def __init__(self, *ops):
        self.ops = ops

    def __call__(self, x):
        for op in random.sample(self.ops, 2):
            x = op(x)
        return x


class Traces(Dataset):
    def __init__(self, folder, ops):
        self.files = sorted(Path(folder).glob("*.npy"))
        self.ops = ops

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        raw = np.load(self.files[i])
        time.sleep(0.002)
        x = self.ops((raw - raw.mean()) / raw.std())
        spec = np.abs(np.fft.rfft(x * np.hamming(len(x))))[:256]
        return torch.as_tensor(np.log1p(spec), dtype=torch.float32), int(self.files[i].stem.rsplit("_", 1)[1])


def bench(folder, n):
    rng = np.random.default_rng(0)
    t = np.arange(2048) / 2048
    for k in range(n):
        label = k % 3
        f = rng.choice(RPM) / 60
        x = np.sin(2 * np.pi * f * t) + 0.7 * (label > 0) * np.sin(2 * np.pi * f * (3.1 + label) * t) + rng.normal(0, 0.4, t.size)
        np.save(Path(folder) / f"t{k:04d}_{label}.npy", x.astype(np.float32))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=20)
    a = ap.parse_args()
    seed_everything(a.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bearing_") as folder:
        bench(folder, 480)
        loader = DataLoader(Traces(folder, OneOf(jitter, scale, warp)), a.batch, shuffle=True, num_workers=a.workers,
                            worker_init_fn=Reproducible(a.seed), persistent_workers=True)
        model = nn.Sequential(nn.Unflatten(1, (1, 256)), nn.Conv1d(1, 48, 9, padding=4), nn.ReLU(), nn.Conv1d(48, 64, 9, padding=4), nn.ReLU(),
                              nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, 3))
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        for epoch in range(a.epochs):
            correct = total = 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += (out.argmax(1) == y).sum().item()
                total += len(y)
            print(f"epoch {epoch}  accuracy {correct / total:.3f}", flush=True)


if __name__ == "__main__":
    main()
