"""Wafer defect patterns; every epoch is a fixed number of steps over a long table."""
import argparse
import itertools
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SIDE = 52
PATTERNS = ["ring", "centre", "scratch", "random"]


def fabricate(path: Path, n: int):
    rng = np.random.default_rng(14)
    yy, xx = np.mgrid[-1:1:SIDE * 1j, -1:1:SIDE * 1j]
    rad = np.hypot(yy, xx)
    maps = np.zeros((n, SIDE, SIDE), np.uint8)
    for k in range(n):
        bad = [abs(rad - 0.8) < 0.1, rad < 0.3, abs(yy - rng.uniform(-1, 1) * xx) < 0.06, rng.random((SIDE, SIDE)) < 0.1][k % 4]
        maps[k] = (rad < 1) * (1 + (bad & (rng.random((SIDE, SIDE)) < 0.8)))
    np.save(path, maps)


class Augment:
    def __init__(self):
        self.dice = random.Random()

    def reseed(self, seed):
        self.dice.seed(seed)

    def __call__(self, wafer):
        wafer = np.rot90(wafer, self.dice.randrange(4))
        if self.dice.random() < 0.5:
            wafer = wafer[:, ::-1]
        drop = np.random.random(wafer.shape) < self.dice.uniform(0, 0.08)
        return np.where(drop & (wafer > 0), 1, wafer)


class Wafers(Dataset):
    def __init__(self, path, augment):
        self.maps = np.load(path, mmap_mode="r")
        self.augment = augment

    def __len__(self):
        return len(self.maps)

    def __getitem__(self, i):
        time.sleep(0.003)
        wafer = self.augment(np.array(self.maps[i]))
        hot = np.stack([(wafer == v) for v in range(3)]).astype(np.float32)
        return torch.from_numpy(hot), i % 4


def start_worker(worker_id):
    info = get_worker_info()
    info.dataset.augment.reseed(info.seed)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
                               nn.Conv2d(48, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 4))

    def forward(self, x):
        return self.f(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--steps", type=int, default=22)
    ap.add_argument("--batch", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="wafer_") as tmp:
        fabricate(Path(tmp) / "maps.npy", 1600)
        data = Wafers(Path(tmp) / "maps.npy", Augment())
        loader = DataLoader(data, args.batch, shuffle=True, num_workers=2, persistent_workers=True, worker_init_fn=start_worker)
        model = Net()
        opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        for epoch in range(args.epochs):
            losses, hits = [], []
            for x, y in itertools.islice(loader, args.steps):
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                hits.append((out.argmax(1) == y).float().mean().item())
            print(f"epoch {epoch} loss {np.mean(losses):.4f} accuracy {np.mean(hits):.3f}", flush=True)


if __name__ == "__main__":
    main()
