# cause: shm-exhausted
# limits: shm=64M
"""One-step emulator for a regional ocean model: predicts the next daily field from the current one."""
import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

LEVELS = 10
GRID = 224


class ReanalysisDays(Dataset):
    """Synthetic daily reanalysis: sums of drifting eddies on LEVELS depth levels."""

    def __init__(self, days, seed=3):
        rng = np.random.default_rng(seed)
        self.days = days
        self.centres = rng.uniform(0, GRID, size=(18, 2))
        self.drift = rng.normal(0, 1.5, size=(18, 2))
        self.radius = rng.uniform(8, 40, size=18)
        self.sign = rng.choice([-1.0, 1.0], size=18)
        yy, xx = np.mgrid[0:GRID, 0:GRID]
        self.yy, self.xx = yy.astype(np.float32), xx.astype(np.float32)

    def field(self, day):
        ssh = np.zeros((GRID, GRID), np.float32)
        for (cy, cx), (dy, dx), r, s in zip(self.centres, self.drift, self.radius, self.sign):
            y, x = (cy + dy * day) % GRID, (cx + dx * day) % GRID
            ssh += s * np.exp(-((self.yy - y) ** 2 + (self.xx - x) ** 2) / (2 * r * r))
        depth = np.exp(-np.arange(LEVELS, dtype=np.float32) / 4)[:, None, None]
        return ssh[None] * depth + 0.1 * math.sin(2 * math.pi * day / 365)

    def __len__(self):
        return self.days - 1

    def __getitem__(self, day):
        now, nxt = self.field(day), self.field(day + 1)
        return {"x": now.astype(np.float32), "y": nxt.astype(np.float32), "day": day}


class Emulator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Conv2d(LEVELS, width, 4, stride=4)
        self.mid = nn.Sequential(nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU())
        self.up = nn.ConvTranspose2d(width, LEVELS, 4, stride=4)

    def forward(self, x):
        return x + self.up(self.mid(self.down(x)))


def run_epoch(net, loader, opt=None):
    total, n = 0.0, 0
    for batch in loader:
        with torch.set_grad_enabled(opt is not None):
            loss = nn.functional.mse_loss(net(batch["x"]), batch["y"])
        if opt is not None:
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        total += loss.item() * len(batch["day"])
        n += len(batch["day"])
    return total / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--days", type=int, default=120)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    full = ReanalysisDays(args.days)
    cut = int(0.85 * len(full))
    train = DataLoader(Subset(full, range(cut)), args.batch_size, shuffle=True, num_workers=args.workers)
    val = DataLoader(Subset(full, range(cut, len(full))), args.batch_size, num_workers=args.workers)

    net = Emulator()
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        t0 = time.time()
        tr = run_epoch(net, train, opt)
        va = run_epoch(net, val)
        print(f"epoch {epoch} train {tr:.5f} val {va:.5f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
