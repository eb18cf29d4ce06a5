"""Seabed classification from a packed bathymetry grid; patches are cut straight from the file."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PATCH = 64


class PackedGrid:
    """One descriptor for the whole process tree; reads name their own position."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        self.record = PATCH * PATCH * 4 + 8
        self.count = os.fstat(self.fd).st_size // self.record

    def record_at(self, i):
        raw = os.pread(self.fd, self.record, i * self.record)
        number, kind = np.frombuffer(raw, "<u4", 2)
        if number != i:
            raise ValueError(f"record {i} carries number {number}")
        return np.frombuffer(raw, "<f4", offset=8).reshape(PATCH, PATCH), int(kind)

    def close(self):
        os.close(self.fd)


class SeabedPatches(Dataset):
    def __init__(self, grid):
        self.grid = grid

    def __len__(self):
        return self.grid.count

    def __getitem__(self, i):
        depth, kind = self.grid.record_at(i)
        gy, gx = np.gradient(depth)
        slope = np.hypot(gy, gx)
        x = np.stack([depth - depth.mean(), slope, np.arctan2(gy, gx)]).astype(np.float32)
        x = torch.from_numpy(x)
        if torch.rand(()) < 0.5:
            x = x.flip(2)
        return x, kind


def survey(path, n):
    rng = np.random.default_rng(6)
    yy, xx = np.mgrid[:PATCH, :PATCH]
    with open(path, "wb") as f:
        for i in range(n):
            kind = int(rng.integers(4))
            d = 40 + np.sin(xx / (3 + 3 * kind)) * (1 + kind) + rng.normal(0, 0.4, (PATCH, PATCH))
            f.write(np.array([i, kind], "<u4").tobytes() + d.astype("<f4").tobytes())


class SeabedNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.fc = nn.Linear(2 * width, 4)

    def forward(self, x):
        return self.fc(self.blocks(x).mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--patches", type=int, default=500)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "survey.grid")
        survey(path, args.patches)
        grid = PackedGrid(path)
        train, val = random_split(SeabedPatches(grid), [0.9, 0.1])
        opts = dict(batch_size=16, num_workers=args.workers, persistent_workers=args.workers > 0)
        train, val = DataLoader(train, shuffle=True, **opts), DataLoader(val, **opts)
        net = SeabedNet()
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        for epoch in range(args.epochs):
            net.train()
            for x, y in train:
                loss = F.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                hits = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
            print(f"epoch {epoch} loss {loss.item():.3f} val {hits / len(val.dataset):.3f}", flush=True)
        grid.close()


if __name__ == "__main__":
    main()
