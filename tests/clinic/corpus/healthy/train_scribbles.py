"""Sketch recognition with workers from a clean server process."""
import argparse
import functools
import os
import struct
import tempfile
import threading
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORD = struct.Struct("<B64f")


def write_sketches(path, n):
    rng = np.random.default_rng(0)
    with open(path, "wb") as fh:
        for _ in range(n):
            y = int(rng.integers(4))
            t = np.linspace(0, 6.28, 32)
            pts = np.stack([np.cos((y + 1) * t), np.sin(t)], 1) + rng.normal(0, 0.05, (32, 2))
            fh.write(RECORD.pack(y, *pts.ravel()))


class SketchFile:
    """Opened on first use in each process; the lock is for the preview thread."""

    def __init__(self, path):
        self.path = path
        self._reset()

    def _reset(self):
        self._fh, self._lock = None, threading.Lock()

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.path = state["path"]
        self._reset()

    def read(self, i):
        with self._lock:
            if self._fh is None:
                self._fh = open(self.path, "rb")
            self._fh.seek(i * RECORD.size)
            y, *pts = RECORD.unpack(self._fh.read(RECORD.size))
        return np.array(pts, np.float32).reshape(32, 2), y


class Sketches(Dataset):
    def __init__(self, path, n, transform):
        self.file, self.n, self.transform = SketchFile(path), n, transform

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        pts, y = self.file.read(i)
        return self.transform(torch.from_numpy(pts)), y


def rasterise(points, side):
    time.sleep(0.004)
    img = torch.zeros(1, side, side)
    xy = ((points * 0.4 + 0.5 + 0.02 * torch.randn(2)).clamp(0, 0.999) * side).long()
    img[0, xy[:, 1], xy[:, 0]] = 1.0
    return img


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=480)
    ap.add_argument("--epochs", type=int, default=4)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mp.set_forkserver_preload(["torch", "numpy", "torch.utils.data"])
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "sketches.bin")
        write_sketches(path, a.n)
        data = Sketches(path, a.n, functools.partial(rasterise, side=64))
        loader = DataLoader(data, 16, shuffle=True, num_workers=2, multiprocessing_context="forkserver", persistent_workers=True)
        model = nn.Sequential(nn.Conv2d(1, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 48, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(432, 4))
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.8 ** e)
        for epoch in range(a.epochs):
            right = 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += (out.argmax(1) == y).sum().item()
            sched.step()
            print(f"epoch {epoch} accuracy {right / a.n:.3f}", flush=True)


if __name__ == "__main__":
    main()
