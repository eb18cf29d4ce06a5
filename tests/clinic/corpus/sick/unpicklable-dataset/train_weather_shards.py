# cause: unpicklable-dataset
"""Nowcasting from binary radar shards."""
import os
import struct
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

MAGIC = b"RDR1"
GRID = 40


class ShardWriter:
    def __init__(self, path):
        self.fh = open(path, "wb")
        self.fh.write(MAGIC + struct.pack("<I", 0))
        self.n = 0

    def add(self, frame):
        self.fh.write(frame.astype("<f4").tobytes())
        self.n += 1

    def close(self):
        self.fh.seek(4)
        self.fh.write(struct.pack("<I", self.n))
        self.fh.close()


class Shard(Dataset):
    RECORD = GRID * GRID * 4

    def __init__(self, path, lag=3):
        self.stream = open(path, "rb")
        if self.stream.read(4) != MAGIC:
            raise ValueError(f"{path}: not a shard")
        (self.count,) = struct.unpack("<I", self.stream.read(4))
        self.lag = lag

    def __len__(self):
        return self.count - self.lag

    def frames(self, start, n):
        raw = os.pread(self.stream.fileno(), n * self.RECORD, 8 + start * self.RECORD)
        return np.frombuffer(raw, "<f4").reshape(n, GRID, GRID)

    def __getitem__(self, i):
        block = self.frames(i, self.lag + 1).copy()
        return torch.from_numpy(block[:-1]), torch.from_numpy(block[-1:])


def simulate(folder, shards, frames):
    rng = np.random.default_rng(9)
    paths = []
    for s in range(shards):
        path = os.path.join(folder, f"radar_{s:02d}.bin")
        w, field = ShardWriter(path), rng.random((GRID, GRID))
        for _ in range(frames):
            field = 0.97 * np.roll(field, 1, 1) + 0.03 * rng.random((GRID, GRID))
            w.add(field)
        w.close()
        paths.append(path)
    return paths


def split(data, fraction):
    cut = int(len(data) * fraction)
    return Subset(data, range(cut)), Subset(data, range(cut, len(data)))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        everything = ConcatDataset([Shard(p) for p in simulate(folder, 5, 120)])
        train, held_out = split(everything, 0.8)
        options = dict(batch_size=16, num_workers=2, multiprocessing_context="spawn" if sys.platform != "win32" else None)
        net = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 5, padding=2))
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(2):
            for past, future in DataLoader(train, shuffle=True, **options):
                loss = nn.functional.l1_loss(net(past), future)
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                errors = [nn.functional.l1_loss(net(p), f).item() for p, f in DataLoader(held_out, **options)]
            print(f"epoch {epoch}: held out {np.mean(errors):.4f}", flush=True)


if __name__ == "__main__":
    main()
