"""Step-based training with an endless sampler and one iterator for the whole run."""
import argparse
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Endless(Sampler):
    """Permutation after permutation, never ending."""

    def __init__(self, size, seed):
        self.size, self.seed = size, seed

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed)
        while True:
            yield from torch.randperm(self.size, generator=g).tolist()


class Terrain(Dataset):
    """Height maps, stored compressed; the task is to predict the slope."""

    def __init__(self, n, size=128):
        self.size = size
        rs = np.random.RandomState(0)
        yy, xx = np.mgrid[0:size, 0:size] / size
        self.blobs = []
        for i in range(n):
            h = np.sin(xx * rs.uniform(2, 9)) + np.cos(yy * rs.uniform(2, 9)) + rs.normal(0, .01, xx.shape)
            self.blobs.append(zlib.compress((h * 1000).astype("<i2").tobytes(), 3))

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, i):
        h = np.frombuffer(zlib.decompress(self.blobs[i]), "<i2").reshape(self.size, self.size) / 1000
        for _ in range(6):
            h = 0.6 * h + 0.1 * (np.roll(h, 1, 0) + np.roll(h, -1, 0) + np.roll(h, 1, 1) + np.roll(h, -1, 1))
        gy, gx = np.gradient(h)
        slope = np.hypot(gx, gy) * self.size
        return torch.from_numpy(h.astype(np.float32))[None], torch.from_numpy(slope.astype(np.float32))[None]


def conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=24)
    ap.add_argument("--accumulate", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Terrain(100)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=Endless(len(data), seed=4), num_workers=2)
    batches = iter(loader)
    model = nn.Sequential(conv(1, 14), conv(14, 14), nn.Conv2d(14, 1, 3, padding=1))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, args.steps + 1):
        x, y = next(batches)
        loss = nn.functional.mse_loss(model(x), y) / args.accumulate
        loss.backward()
        if step % args.accumulate == 0:
            opt.step()
            opt.zero_grad(set_to_none=True)
        if step % 8 == 0:
            print(f"step {step} loss {loss.item() * args.accumulate:.4f}", flush=True)


if __name__ == "__main__":
    main()
