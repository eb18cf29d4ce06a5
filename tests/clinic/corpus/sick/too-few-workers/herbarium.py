# cause: too-few-workers
# also: storage-bound, not-fed-fast-enough
"""Leaf species classifier, images come from the museum's file server."""
import argparse
import io
import os
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def fill(root, n):
    rng = np.random.default_rng(0)
    for i in range(n):
        a = rng.integers(0, 120, (32, 32, 3), dtype=np.uint8)
        a[..., i % 3] += 100
        Image.fromarray(a).save(os.path.join(root, f"{i:04d}_{i % 3}.png"))


class Share:
    """Remote folder mounted over a slow line."""

    def __init__(self, root, latency):
        self.root, self.latency = root, latency

    def names(self):
        return sorted(os.listdir(self.root))

    def open(self, name):
        time.sleep(self.latency)
        with open(os.path.join(self.root, name), "rb") as f:
            return io.BytesIO(f.read())


class Leaves(Dataset):
    def __init__(self, share):
        self.share, self.names = share, share.names()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        img = Image.open(self.share.open(name)).convert("RGB")
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x, int(name.split("_")[1][0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=240)
    ap.add_argument("--latency", type=float, default=0.012)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--batch", type=int, default=12)
    a = ap.parse_args()
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    with tempfile.TemporaryDirectory() as root:
        fill(root, a.images)
        loader = DataLoader(Leaves(Share(root, a.latency)), a.batch, shuffle=True, num_workers=a.workers, persistent_workers=True)
        for epoch in range(a.epochs):
            t, good = time.time(), 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                good += int((out.argmax(1) == y).sum())
            print(f"epoch {epoch} accuracy {good / a.images:.2f} {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
