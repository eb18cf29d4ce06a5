# cause: lock-serialises-workers
"""Handwritten deed dating; scans lie on the office share."""
import argparse
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@contextlib.contextmanager
def turn(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class Share:
    def __init__(self, root, delay):
        self.root, self.delay = Path(root), delay

    def fill(self, deeds):
        rng = np.random.default_rng(0)
        for n in range(deeds):
            ink = (rng.random((96, 96)) < 0.05 + 0.05 * (n % 5)).astype(np.uint8)
            np.packbits(ink).tofile(self.root / f"deed{n:04d}.bits")

    def read(self, name):
        with turn(self.root / ".readers"):
            time.sleep(self.delay)
            return np.fromfile(self.root / name, np.uint8)


class BaseScans(Dataset):
    def __init__(self, share, names):
        self.share, self.names = share, names

    def __len__(self):
        return len(self.names)

    def load(self, i):
        return np.unpackbits(self.share.read(self.names[i])).reshape(96, 96)

    def __getitem__(self, i):
        raise NotImplementedError


class DatedScans(BaseScans):
    def __getitem__(self, i):
        page = np.roll(self.load(i), np.random.randint(-8, 8, 2), (0, 1)).astype(np.float32)
        coarse = page.reshape(32, 3, 32, 3).mean((1, 3))
        return torch.from_numpy(coarse)[None], int(self.names[i][4:8]) % 5


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--deeds", type=int, default=500)
    p.add_argument("--delay-ms", type=float, default=9)
    p.add_argument("--batch", type=int, default=10)
    p.add_argument("--workers", type=int, default=3)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="deeds")
    try:
        share = Share(root, a.delay_ms / 1000)
        share.fill(a.deeds)
        names = sorted(f.name for f in Path(root).glob("*.bits"))
        loader = DataLoader(DatedScans(share, names), a.batch, shuffle=True, num_workers=a.workers)
        net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5))
        opt = torch.optim.Adam(net.parameters(), 1e-2)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, len(loader))
        began = time.time()
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 10 == 0:
                print(f"step {step}/{len(loader)} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
        print(f"{a.deeds / (time.time() - began):.0f} deeds/s")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
