"""Wetland chips from object storage; the loader processes spend their time waiting for the round trip."""
import argparse
import io
import os
import time
import warnings

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", message=".*worker processes.*")


class Session:
    def __init__(self, objects, latency):
        self.objects, self.latency = objects, latency
        self.pid = os.getpid()

    def get(self, key):
        time.sleep(self.latency)
        return self.objects[key]


class Bucket:
    """Hands out one session per process."""

    def __init__(self, latency):
        self.latency, self.objects, self._session = latency, {}, None

    @property
    def session(self):
        if self._session is None or self._session.pid != os.getpid():
            self._session = Session(self.objects, self.latency)
        return self._session


def upload(bucket, n):
    rng = np.random.default_rng(3)
    for k in range(n):
        base = rng.integers(0, 60, (8, 8, 3), dtype=np.uint8)
        base[..., k % 3] += 100
        buf = io.BytesIO()
        Image.fromarray(base).resize((64, 64)).save(buf, "PNG")
        bucket.objects[f"wetland/{k:04d}"] = buf.getvalue()


class WetlandChips(Dataset):
    def __init__(self, bucket, chips, repeat):
        self.bucket, self.chips, self.repeat = bucket, chips, repeat

    def __len__(self):
        return self.chips * self.repeat

    def __getitem__(self, i):
        k = i % self.chips
        img = Image.open(io.BytesIO(self.bucket.session.get(f"wetland/{k:04d}")))
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div(255)
        return (x.flip(2) if torch.rand(()) < 0.5 else x), k % 3


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1), nn.BatchNorm2d(c))

    def forward(self, x):
        return torch.relu(x + self.conv(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=8)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bucket = Bucket(latency=0.03)
    upload(bucket, 120)
    loader = DataLoader(WetlandChips(bucket, 120, 6), batch_size=16, shuffle=True, num_workers=args.workers, persistent_workers=True, drop_last=True)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), Block(32), Block(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        t0, good, seen = time.time(), 0, 0
        for step, (x, y) in enumerate(loader):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            good += (out.argmax(1) == y).sum().item()
            seen += len(y)
            if step % 10 == 0:
                print(f"epoch {epoch} {step}/{len(loader)} acc {good / seen:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
