# cause: large-python-objects
"""Rock face segmentation (dig / leave) from laser scans stored as x, y, z, strength records."""
import argparse
import random
import shutil
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORD = struct.Struct("<4f")


def scan_quarry(root, scans, points):
    rng = np.random.default_rng(0)
    for s in range(scans):
        xyz = rng.normal(size=(points, 3)) * (1.0, 1.0 + s % 2, 0.3)
        strength = rng.random((points, 1)) + 0.3 * (s % 2)
        np.hstack([xyz, strength]).astype("<f4").tofile(root / f"face{s:03d}_{s % 2}.rec")


class Share:
    """The scans stay on the office share; a request has a noticeable delay."""

    def __init__(self, root, delay):
        self.root, self.delay = root, delay

    def names(self):
        return sorted(f.name for f in self.root.glob("*.rec"))

    def read(self, name):
        time.sleep(self.delay)
        return (self.root / name).read_bytes()


class Faces(Dataset):
    def __init__(self, share):
        self.share, self.names = share, share.names()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        points = list(RECORD.iter_unpack(self.share.read(name)))
        turn = random.randrange(len(points))
        return {"name": name, "points": points[turn:] + points[:turn], "dig": int(name[-5])}


def gather(samples):
    return {key: [s[key] for s in samples] for key in samples[0]}


class FaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, clouds):
        h = self.point(clouds[:, ::16])
        return self.head(torch.cat([h.mean(1), h.amax(1)], 1))


def to_batch(raw, device):
    clouds = torch.from_numpy(np.array(raw["points"], np.float32))
    return clouds.to(device), torch.tensor(raw["dig"], device=device)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scans", type=int, default=136)
    p.add_argument("--points", type=int, default=16_000)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="quarry"))
    try:
        scan_quarry(root, a.scans, a.points)
        loader = DataLoader(Faces(Share(root, 0.03)), a.batch, shuffle=True, num_workers=a.workers, collate_fn=gather)
        net = FaceNet()
        opt = torch.optim.Adam(net.parameters(), 5e-3)
        for epoch in range(a.epochs):
            began, right = time.time(), 0
            for raw in loader:
                x, y = to_batch(raw, "cpu")
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += (out.argmax(1) == y).sum().item()
            print(f"epoch {epoch} loss {loss.item():.3f} accuracy {right / a.scans:.2f} {time.time() - began:.1f}s", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
