# limits: memory=1G
"""Quarry faces, cut or broken: neighbourhood statistics of laser points, taken from a sample of the points of a face."""
import argparse
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

MAGIC = b"QRY1"


def scan(path: Path, points: int, label: int, rng):
    xyz = rng.normal(size=(points, 3)).astype("<f4")
    xyz[:, 0] *= 4.0 if label else 1.0
    with path.open("wb") as f:
        f.write(MAGIC + struct.pack("<II", points, label))
        f.write(xyz.tobytes())


def build(folder: Path, pieces: int):
    rng = np.random.default_rng(9)
    for k in range(pieces):
        points = int(rng.integers(60, 120))
        if k == 203:
            points = 11_500
        scan(folder / f"piece{k:04d}.qry", points, k % 2, rng)


def load(path):
    raw = path.read_bytes()
    if raw[:4] != MAGIC:
        raise ValueError(f"{path.name}: no quarry scan")
    points, label = struct.unpack_from("<II", raw, 4)
    return np.frombuffer(raw, "<f4", points * 3, 12).reshape(points, 3).astype(np.float64), label


class Neighbourhood:
    def __init__(self, k=12, most=256):
        self.k, self.most = k, most

    def __call__(self, xyz):
        if len(xyz) > self.most:
            xyz = xyz[np.random.choice(len(xyz), self.most, replace=False)]
        delta = xyz[:, None, :] - xyz[None, :, :]
        dist = np.sqrt((delta ** 2).sum(-1))
        near = np.partition(dist, self.k, axis=1)[:, : self.k + 1]
        spread = xyz.std(0)
        return np.concatenate([near.mean(0), near.std(0), spread, np.quantile(dist, [0.1, 0.5, 0.9])]).astype(np.float32)


class Pieces(Dataset):
    def __init__(self, folder: Path, features):
        self.paths = sorted(folder.glob("*.qry"))
        self.features = features

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        xyz, label = load(self.paths[i])
        time.sleep(0.002)
        angle = np.random.rand() * 2 * np.pi
        c, s = np.cos(angle), np.sin(angle)
        xyz = xyz @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        return torch.from_numpy(self.features(xyz)), label


def accuracy(model, loader):
    with torch.no_grad():
        pairs = [(model(x).argmax(1) == y).float().mean().item() for x, y in loader]
    return sum(pairs) / len(pairs)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--pieces", type=int, default=300)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--k", type=int, default=12)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        build(Path(tmp), args.pieces)
        data = Pieces(Path(tmp), Neighbourhood(args.k))
        test = range(0, args.pieces, 10)
        train = [i for i in range(args.pieces) if i % 10]
        loader = DataLoader(Subset(data, train), 8, shuffle=True, num_workers=args.workers, persistent_workers=True)
        test_loader = DataLoader(Subset(data, test), 17)
        model = nn.Sequential(nn.Linear(2 * (args.k + 1) + 6, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
        opt = torch.optim.Adam(model.parameters(), 3e-4)
        for epoch in range(args.epochs):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f} test accuracy {accuracy(model, test_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
