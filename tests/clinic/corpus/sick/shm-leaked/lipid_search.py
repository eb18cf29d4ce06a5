# cause: shm-leaked, shm-exhausted
# also: per-worker-cache, workers-restarted
# limits: shm=64M
"""Lipid classes from mass spectra, cross-validated.  Rendered peak maps are kept on a RAM disk."""
import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

RAMDISK = Path("/dev/shm")


class PeakMaps:
    """Renders a list of peaks at several resolutions; rendering is expensive, so the result is kept in RAM."""

    def __init__(self, tag):
        self.tag = tag

    def location(self, i):
        # one file per process: no two writers ever meet
        return RAMDISK / f"{self.tag}_{os.getpid()}_{i:05d}.npy"

    def render(self, peaks):
        grid = np.linspace(0, 1, 2048, dtype=np.float32)
        maps = []
        for width in (0.002, 0.004, 0.008, 0.016):
            d = (grid[None, :] - peaks[:16, :1]) / width
            maps.append(peaks[:16, 1:2] * np.exp(-0.5 * d * d))
        return np.concatenate(maps).astype(np.float16)

    def __call__(self, i, peaks):
        path = self.location(i)
        if not path.exists():
            np.save(path, self.render(peaks))
        return np.load(path)


class Spectra(Dataset):
    def __init__(self, folder, maps):
        self.paths = sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".npy"))
        self.maps = maps

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        peaks = np.load(self.paths[i])
        x = torch.from_numpy(self.maps(i, peaks).astype(np.float32))
        return x, torch.tensor(float(peaks[:, 1].sum() > 60))


def make_spectra(folder, n, seed=2):
    rng = np.random.default_rng(seed)
    for k in range(n):
        peaks = np.stack([rng.uniform(0, 1, 120), rng.uniform(0, 1, 120)], axis=1).astype(np.float32)
        np.save(os.path.join(folder, f"s{k:04d}.npy"), peaks)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.AvgPool1d(32), nn.Conv1d(64, 16, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(64, 1))

    def forward(self, x):
        return self.f(x).squeeze(1)


def fold(number, data, held, args):
    rest = [i for i in range(len(data)) if i not in held]
    train = DataLoader(Subset(data, rest), batch_size=4, shuffle=True, num_workers=2)
    test = DataLoader(Subset(data, sorted(held)), batch_size=4, num_workers=2)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    for _ in range(args.epochs):
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    with torch.no_grad():
        hits = sum(((net(x) > 0) == (y > 0.5)).sum().item() for x, y in test)
    print(f"fold {number}: loss {loss.item():.3f} accuracy {hits / len(held):.3f}", flush=True)
    return hits / len(held)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folds", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=0.01)
    args = ap.parse_args()
    torch.manual_seed(0)
    folder = tempfile.mkdtemp(prefix="lipids_")
    try:
        make_spectra(folder, 80)
        data = Spectra(folder, PeakMaps(os.path.basename(folder)))
        order = torch.randperm(len(data)).tolist()
        scores = [fold(k, data, set(order[k::args.folds]), args) for k in range(args.folds)]
        print("mean accuracy", sum(scores) / len(scores))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path in RAMDISK.glob(os.path.basename(folder) + "_*"):
            path.unlink()


if __name__ == "__main__":
    main()
