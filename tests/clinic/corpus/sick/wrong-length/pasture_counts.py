# cause: wrong-length, stale-dataset-in-workers
"""Count sheep on pasture strips. Frames of the second flight are added to those of the first; crops get harder from epoch to epoch."""
import argparse
import shutil
import tempfile
import time
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 72


def fly(folder: Path, name: str, frames: int, seed: int):
    rng = np.random.default_rng(seed)
    target = folder / name
    target.mkdir()
    for k in range(frames):
        n = int(rng.integers(0, 9))
        img = rng.integers(20, 70, (SIDE, SIDE)).astype(np.uint8)
        for r, c in rng.integers(4, SIDE - 4, (n, 2)):
            img[r - 2:r + 3, c - 2:c + 3] = 230
        np.savez_compressed(target / f"{k:04d}.npz", img=img, sheep=n)


class Frames(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.npz"))

    @cached_property
    def size(self):
        return len(self.paths)

    def __len__(self):
        return self.size

    def describe(self):
        return f"{len(self)} frames from {self.paths[0].parent.name}"

    def add(self, folder: Path):
        self.paths += sorted(folder.glob("*.npz"))
        return self

    def load(self, i):
        time.sleep(0.003)
        with np.load(self.paths[i]) as z:
            return z["img"].astype(np.float32) / 255, float(z["sheep"])


class Crops(Frames):
    """Darkens and blurs frames; how much depends on the stage of training."""

    stage = 0

    def set_stage(self, stage):
        self.stage = stage

    def __getitem__(self, i):
        img, sheep = self.load(i)
        img = img * (1.0 - 0.2 * self.stage)
        for _ in range(self.stage):
            img = (img + np.roll(img, 1, 0) + np.roll(img, 1, 1)) / 3
        return torch.from_numpy(img.astype(np.float32)).unsqueeze(0), torch.tensor(sheep)


class Counter(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 1))

    def forward(self, x):
        return self.net(x).sum((1, 2, 3)) / 100


class Fitting:
    def __init__(self, model, data, loader, lr):
        self.model, self.data, self.loader = model, data, loader
        self.opt = torch.optim.Adam(model.parameters(), lr)

    def epoch(self, number):
        self.data.set_stage(number)
        losses = []
        for x, y in self.loader:
            loss = nn.functional.smooth_l1_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return float(np.mean(losses))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=12)
    args = ap.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp())
    try:
        fly(root, "june", 160, 1)
        fly(root, "august", 110, 2)
        data = Crops(root / "june")
        print("first flight:", data.describe(), flush=True)
        data.add(root / "august")
        loader = DataLoader(data, args.batch, shuffle=True, num_workers=2, persistent_workers=True)
        fitting = Fitting(Counter(), data, loader, 2e-3)
        for e in range(args.epochs):
            print(f"epoch {e}: loss {fitting.epoch(e):.4f}", flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
