"""Throw classification from ball tracks; the noise level rises with every epoch."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Level:
    """A number that every process sees."""

    def __init__(self, value=0.0):
        self._cell = torch.tensor([value]).share_memory_()

    def set(self, value):
        self._cell.fill_(value)

    def get(self):
        return float(self._cell[0])


def film(folder, n, kinds):
    rng = np.random.default_rng(90)
    t = np.linspace(0, 1, 120)
    for k in range(n):
        kind = k % kinds
        speed, up = rng.uniform(12, 25), 1 + kind * 1.5
        track = np.stack([speed * t, up * t - 4.9 * t ** 2, np.sin(t * (kind + 1) * 3)], 1) + rng.normal(0, 0.05, (120, 3))
        np.savetxt(folder / f"throw{k:03d}_{kind}.txt", track, fmt="%.4f")


class Throws(Dataset):
    def __init__(self, folder, level):
        self.files = sorted(folder.glob("*.txt"))
        self.level = level

    def __len__(self):
        return len(self.files)

    def load(self, path):
        time.sleep(0.002)
        return np.loadtxt(path, dtype=np.float32)

    def __getitem__(self, i):
        path = self.files[i]
        track = torch.from_numpy(self.load(path))
        track = track + self.level.get() * torch.randn_like(track)
        speed = torch.diff(track, dim=0, prepend=track[:1]) * 10
        return torch.cat([track, speed], 1).T.contiguous(), int(path.stem[-1])


class Net(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm1d(6), nn.Conv1d(6, 64, 7, padding=3), nn.ReLU(), nn.Conv1d(64, 96, 7, padding=3), nn.ReLU(),
                                 nn.Conv1d(96, 96, 7, 2), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(96, kinds))

    def forward(self, x):
        return self.net(x)


class RaiseLevel:
    def __init__(self, level, per_epoch):
        self.level, self.per_epoch = level, per_epoch

    def on_epoch_start(self, epoch):
        self.level.set(self.per_epoch * epoch)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--kinds", type=int, default=4)
    args = p.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="throws_") as tmp:
        folder = Path(tmp)
        film(folder, 320, args.kinds)
        level = Level()
        data = Throws(folder, level)
        train = Subset(data, [i for i in range(len(data)) if i % 8])
        loader = DataLoader(train, 14, shuffle=True, num_workers=2, persistent_workers=True)
        callbacks = [RaiseLevel(level, 0.05)]
        model = Net(args.kinds)
        opt = torch.optim.AdamW(model.parameters(), 2e-3)
        for epoch in range(args.epochs):
            for c in callbacks:
                c.on_epoch_start(epoch)
            hit = n = 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hit += (out.argmax(1) == y).sum().item()
                n += len(y)
            print(f"epoch {epoch} noise {level.get():.2f} accuracy {hit / n:.3f}", flush=True)


if __name__ == "__main__":
    main()
