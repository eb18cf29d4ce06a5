# cause: slow-shutdown
# also: straggler-samples
"""Birdsong detection. Quick validation after every epoch on the first few (short) recordings of the list."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

RATE = 8000


def synth(seconds, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    return (np.sin(2 * np.pi * (1200 + 300 * np.sin(6 * t)) * t) * (seed % 2) + 0.3 * rng.standard_normal(len(t))).astype(np.float32)


class Denoise:
    """Iterative median-style smoothing; its cost grows with the length of the recording."""

    def __init__(self, rounds=3, width=9):
        self.rounds, self.width = rounds, width

    def __call__(self, w):
        for _ in range(self.rounds):
            pad = np.pad(w, self.width // 2, mode="edge")
            view = np.lib.stride_tricks.sliding_window_view(pad, self.width)
            w = 0.5 * w + 0.5 * np.median(view, axis=1).astype(np.float32)
        return w


class MelLike:
    def __call__(self, w):
        n = len(w) // 256
        spec = np.abs(np.fft.rfft(w[:n * 256].reshape(n, 256) * np.hanning(256), axis=1))[:, :64]
        return torch.from_numpy(np.log1p(spec).mean(0).astype(np.float32))


class Recordings(Dataset):
    def __init__(self, lengths, steps, seed):
        self.lengths, self.steps, self.seed = lengths, steps, seed

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        x = synth(self.lengths[i], self.seed + i)
        for s in self.steps:
            x = s(x)
        return x, (self.seed + i) % 2


class ByLength(Sampler):
    """Short ones first: the progress bar moves early."""

    def __init__(self, ds):
        self.order = np.argsort(ds.lengths, kind="stable").tolist()

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


def quick_check(model, loader, limit):
    hits = n = 0
    with torch.no_grad():
        for k, (x, y) in enumerate(loader):
            hits += (model(x).argmax(1) == y).sum().item()
            n += len(y)
            if k + 1 == limit:
                break
    return hits / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--quick", type=int, default=3, help="validation batches per epoch")
    a = ap.parse_args()
    torch.manual_seed(0)
    train_set = Recordings([0.5] * 240, [MelLike()], 0)
    val_set = Recordings([0.5] * 12 + [90.0] * 36, [Denoise(), MelLike()], 1000)
    train = DataLoader(train_set, 16, shuffle=True, num_workers=2, persistent_workers=True)
    val = DataLoader(val_set, 4, sampler=ByLength(val_set), num_workers=2)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        t0 = time.time()
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        t1 = time.time()
        acc = quick_check(model, val, a.quick)
        print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.2f}  train {t1 - t0:.1f}s check {time.time() - t1:.1f}s", flush=True)


if __name__ == "__main__":
    main()
