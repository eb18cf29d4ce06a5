# cause: workers-not-worth-it
"""Delay-embedding forecaster for a chaotic system."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def lorenz(steps, dt=0.01):
    state = torch.tensor([1.0, 1.0, 20.0], dtype=torch.float64).tolist()
    out = []
    for _ in range(steps):
        x, y, z = state
        state = [x + dt * 10 * (y - x), y + dt * (x * (28 - z) - y), z + dt * (x * y - 8 / 3 * z)]
        out.append(state)
    track = torch.tensor(out, dtype=torch.float32)
    return (track - track.mean(0)) / track.std(0)


class DelayWindows(Dataset):
    def __init__(self, track, taps, spacing, ahead):
        self.track, self.ahead = track, ahead
        self.offsets = torch.arange(taps) * spacing
        self.span = int(self.offsets[-1]) + 1

    def __len__(self):
        return len(self.track) - self.span - self.ahead

    def __getitem__(self, i):
        return self.track[self.offsets + i].flatten(), self.track[i + self.span + self.ahead - 1]


class Callback:
    def on_log(self, **info):
        print("  ".join(f"{k}={v}" for k, v in info.items()), flush=True)


class Fitter:
    def __init__(self, model, lr, callbacks):
        self.model, self.callbacks = model, callbacks
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)

    def run(self, loader, log_every):
        began = time.time()
        for n, (x, y) in enumerate(loader, 1):
            loss = (self.model(x) - y).square().mean()
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            if n % log_every == 0:
                for c in self.callbacks:
                    c.on_log(batch=n, loss=round(loss.item(), 4), seconds=round(time.time() - began, 1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--points", type=int, default=16_000)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--taps", type=int, default=6)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.05)
    args = p.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = DelayWindows(lorenz(args.points), args.taps, 5, 10)
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    Fitter(nn.Linear(3 * args.taps, 3), args.lr, [Callback()]).run(loader, 1000)


if __name__ == "__main__":
    main()
