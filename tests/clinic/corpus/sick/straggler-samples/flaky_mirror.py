# cause: straggler-samples
# also: too-few-workers
"""Cloud type classifier; frames come from a mirror that now and then asks to be called again."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Busy(Exception):
    pass


class Mirror:
    """Stands for the download service: quick as a rule, a few frames are being moved and refuse at first."""

    def __init__(self, side, moved):
        self.side, self.moved = side, moved

    def get(self, frame, attempt):
        if frame in self.moved and attempt < 4:
            raise Busy(frame)
        time.sleep(0.003)
        rng = np.random.default_rng(frame)
        sky = rng.normal(size=(self.side, self.side)).cumsum(frame % 2).astype(np.float32)
        return sky / np.abs(sky).max()


def with_backoff(call, *args, first=0.06, tries=6):
    wait = first
    for attempt in range(tries):
        try:
            return call(*args, attempt)
        except Busy:
            time.sleep(wait)
            wait *= 2
    raise OSError(f"gave up on {args}")


class Sky(Dataset):
    def __init__(self, mirror, frames):
        self.mirror, self.frames = mirror, frames

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        frame = self.frames[i]
        sky = with_backoff(self.mirror.get, frame)
        if np.random.rand() < 0.5:
            sky = sky[::-1].copy()
        return torch.from_numpy(sky)[None], frame % 2


class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def should_stop(self, loss):
        self.bad = 0 if loss < self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad > self.patience


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=400)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--side", type=int, default=48)
    p.add_argument("--epochs", type=int, default=1)
    a = p.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    moved = set(range(5, a.frames, a.frames // 10))
    loader = DataLoader(Sky(Mirror(a.side, moved), list(range(a.frames))), a.batch, shuffle=True, num_workers=a.workers)
    net = nn.Sequential(nn.Conv2d(1, 6, 5, stride=2), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(96, 2))
    opt, stopper = torch.optim.Adam(net.parameters(), 2e-3), Stopper(2)
    for epoch in range(a.epochs):
        began, total, longest, last = time.time(), 0.0, 0.0, time.time()
        for x, y in loader:
            longest = max(longest, time.time() - last)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, last = total + loss.item(), time.time()
        print(f"epoch {epoch} loss {total / len(loader):.3f} {last - began:.1f}s longest pause {longest:.2f}s", flush=True)
        if stopper.should_stop(total):
            break


if __name__ == "__main__":
    main()
