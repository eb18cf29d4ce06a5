# arguments: --clips 480
"""Drone footage: short clips, some longer than others, prefetched a little deeper than usual."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Footage(Dataset):
    def __init__(self, n, side=24):
        self.n, self.side = n, side
        self.length = np.random.default_rng(5).integers(6, 12, n)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        frames = []
        for f in range(self.length[i]):
            time.sleep(0.0002)                  # capture card
            frame = rng.random((self.side, self.side), dtype=np.float32)
            frame[f % self.side] += i % 3
            frames.append(frame)
        pick = np.linspace(0, len(frames) - 1, 6).astype(int)
        return torch.from_numpy(np.stack([frames[k] for k in pick])), i % 3


class Temporal(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(24 * 24, 1152), nn.ReLU(), nn.Linear(1152, 1024), nn.ReLU())
        self.out = nn.Linear(1024, 3)

    def forward(self, x):
        return self.out(self.stem(x.flatten(2)).mean(1))


def schedule(opt, steps):
    return torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=steps)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=320)
    p.add_argument("--batch", type=int, default=6)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Footage(a.clips), a.batch, shuffle=True, num_workers=2, prefetch_factor=4, persistent_workers=True)
    model = Temporal()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sched = schedule(opt, a.epochs * len(loader))
    for epoch in range(a.epochs):
        right = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            right += int((out.argmax(1) == y).sum())
        print("epoch %d accuracy %.2f lr %.5f" % (epoch, right / a.clips, sched.get_last_lr()[0]), flush=True)


if __name__ == "__main__":
    main()
