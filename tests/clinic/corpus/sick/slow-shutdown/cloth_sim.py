# cause: slow-shutdown
"""Surrogate for a cloth simulator: predict the rest energy from the first second of a run. Training stops after a fixed number of steps."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

GRID = 10


class Cloth:
    """Mass-spring sheet, integrated explicitly."""

    def __init__(self, stiffness, rng):
        self.k = stiffness
        y, x = np.mgrid[:GRID, :GRID].astype(np.float64)
        self.pos = np.stack([x, y, rng.normal(0, 0.05, (GRID, GRID))], -1)
        self.vel = np.zeros_like(self.pos)

    def forces(self):
        f = np.zeros_like(self.pos)
        for axis in (0, 1):
            d = np.diff(self.pos, axis=axis)
            length = np.linalg.norm(d, axis=-1, keepdims=True)
            pull = self.k * (length - 1) * d / length
            lo = [slice(None)] * 3
            hi = [slice(None)] * 3
            lo[axis], hi[axis] = slice(None, -1), slice(1, None)
            f[tuple(lo)] += pull
            f[tuple(hi)] -= pull
        f[..., 2] -= 0.3
        return f

    def advance(self, dt=0.02):
        self.vel = 0.995 * (self.vel + dt * self.forces())
        self.vel[0, [0, -1]] = 0
        self.pos = self.pos + dt * self.vel

    def energy(self):
        return float((self.vel ** 2).sum() / 2)


class Runs(Dataset):
    """Stiff sheets are integrated here, soft ones on the farm."""

    def __init__(self, n, soft_from):
        self.stiffness = np.linspace(30, 4, n)
        self.soft_from = soft_from

    def __len__(self):
        return len(self.stiffness)

    def farm(self, sheet):
        time.sleep(25.0)
        return sheet

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        sheet = Cloth(self.stiffness[i], rng)
        for _ in range(30):
            sheet.advance()
        start = torch.tensor(sheet.pos, dtype=torch.float32).flatten()
        if i >= self.soft_from:
            sheet = self.farm(sheet)
        for _ in range(20):
            sheet.advance()
        return start, torch.tensor(sheet.energy(), dtype=torch.float32)


class EasyFirst(Sampler):
    """Shuffles within blocks, blocks in order of difficulty."""

    def __init__(self, n, block):
        self.n, self.block = n, block

    def __len__(self):
        return self.n

    def __iter__(self):
        for a in range(0, self.n, self.block):
            yield from (a + torch.randperm(min(self.block, self.n - a))).tolist()


def fit(model, loader, opt, max_steps):
    history = []
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
        if step + 1 >= max_steps:
            break
    return history


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-steps", type=int, default=24)
    ap.add_argument("--batch", type=int, default=10)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Runs(600, soft_from=args.max_steps * args.batch)
    loader = DataLoader(data, args.batch, sampler=EasyFirst(len(data), 40), num_workers=args.workers)
    model = nn.Sequential(nn.Linear(GRID * GRID * 3, 128), nn.Tanh(), nn.Linear(128, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    began = time.time()
    history = fit(model, loader, opt, args.max_steps)
    print(f"{len(history)} steps, first {history[0]:.4f} last {history[-1]:.4f}, {time.time() - began:.1f} s", flush=True)
    probe = torch.stack([data[i][0] for i in range(0, 40, 8)])
    print("probe", [round(v, 3) for v in model(probe).flatten().tolist()])


if __name__ == "__main__":
    main()
