# cause: stale-dataset-in-workers
"""Arrhythmia classifier on single-lead ECG strips, with a noise curriculum and growing mixup."""
import dataclasses
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler, random_split


@dataclasses.dataclass
class Options:
    strips: int = 1500
    length: int = 5000
    rhythms: int = 4
    batch: int = 32
    epochs: int = 4
    workers: int = 2
    peak_noise: float = 0.8
    peak_mixup: float = 0.5
    seed: int = 21


class Strips(Dataset):
    """Strips synthesised beat by beat from stored heart rates; 250 samples per second."""

    def __init__(self, o):
        g = np.random.default_rng(o.seed)
        self.o = o
        self.rhythm = g.choice(o.rhythms, o.strips, p=[0.55, 0.2, 0.15, 0.1])
        self.rate = g.normal(70, 8, o.strips).astype(np.float32)
        self.seeds = g.integers(0, 2**31, o.strips)

    def __len__(self):
        return len(self.rhythm)

    def __getitem__(self, i):
        g = np.random.default_rng(self.seeds[i])
        kind, n = self.rhythm[i], self.o.length
        t = np.arange(n, dtype=np.float32) / 250
        x, at = np.zeros(n, np.float32), 0.2
        while at < t[-1]:
            gap = 60 / self.rate[i]
            if kind == 1:
                gap *= g.uniform(0.6, 1.4)
            early = kind == 2 and g.random() < 0.25
            width = 0.03 if early else 0.012
            for shift, h, w in ((-0.16, 0.12, 0.02), (0, 1.0, width), (0.03, -0.25, 0.01), (0.25, 0.3, 0.05)):
                x += h * np.exp(-0.5 * ((t - at - shift) / w) ** 2)
            at += gap * (0.6 if early else 1.0) * (0.55 if kind == 3 else 1.0)
        return x, kind


class Hardening(Dataset):
    """Adds baseline wander, muscle noise and mixup to strips, as strongly as asked for."""

    def __init__(self, base, rhythms):
        self.base, self.rhythms = base, rhythms
        self.noise, self.mixup_p = 0.0, 0.0

    def schedule(self, noise, mixup_p):
        self.noise, self.mixup_p = noise, mixup_p

    def __len__(self):
        return len(self.base)

    def clean(self, i):
        x, kind = self.base[i]
        y = np.zeros(self.rhythms, np.float32)
        y[kind] = 1
        return x, y

    def __getitem__(self, i):
        x, y = self.clean(i)
        if np.random.random() < self.mixup_p:
            other, z = self.clean(np.random.randint(len(self)))
            k = np.random.beta(0.4, 0.4)
            x, y = k * x + (1 - k) * other, k * y + (1 - k) * z
        t = np.linspace(0, 1, len(x), dtype=np.float32)
        wander = np.sin(2 * math.pi * (np.random.uniform(1, 4) * t + np.random.random()))
        x = x + self.noise * (0.3 * wander + 0.2 * np.random.standard_normal(len(x)))
        return torch.from_numpy(np.asarray(x, np.float32))[None], torch.from_numpy(np.asarray(y, np.float32))


class Schedule:
    """Callback that makes the task harder as training goes on."""

    def __init__(self, data, o):
        self.data, self.o = data, o

    def on_epoch_start(self, epoch):
        part = epoch / max(1, self.o.epochs - 1)
        self.data.schedule(noise=self.o.peak_noise * part, mixup_p=self.o.peak_mixup * part)


class Timer:
    def on_epoch_start(self, epoch):
        self.t = time.time()

    def on_epoch_end(self, epoch, **values):
        print(f"epoch {epoch}", " ".join(f"{k}={v:.3f}" for k, v in values.items()), f"({time.time() - self.t:.1f} s)", flush=True)


class Trainer:
    def __init__(self, model, o, callbacks):
        self.model, self.o, self.callbacks = model, o, callbacks
        self.opt = torch.optim.Adam(model.parameters(), 2e-3)

    def notify(self, event, *a, **k):
        for c in self.callbacks:
            getattr(c, event, lambda *a, **k: None)(*a, **k)

    def fit(self, train, val):
        for epoch in range(self.o.epochs):
            self.notify("on_epoch_start", epoch)
            losses = []
            for x, y in train:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
            with torch.no_grad():
                ok = torch.cat([self.model(x).argmax(1) == y.argmax(1) for x, y in val]).float().mean().item()
            self.notify("on_epoch_end", epoch, loss=float(np.mean(losses)), accuracy=ok)


if __name__ == "__main__":
    o = Options()
    torch.manual_seed(o.seed)
    torch.set_num_threads(1)
    strips = Strips(o)
    fit, held = random_split(strips, [o.strips - 150, 150])
    hard = Hardening(fit, o.rhythms)
    counts = np.bincount(strips.rhythm[fit.indices], minlength=o.rhythms)
    sampler = WeightedRandomSampler((1 / counts)[strips.rhythm[fit.indices]].tolist(), len(fit))
    train = DataLoader(hard, o.batch, sampler=sampler, num_workers=o.workers, persistent_workers=True)
    val = DataLoader(Hardening(held, o.rhythms), 50, num_workers=1, persistent_workers=True)
    net = nn.Sequential(nn.Conv1d(1, 8, 15, 5), nn.ReLU(), nn.Conv1d(8, 16, 9, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(16), nn.Flatten(), nn.Linear(256, o.rhythms))
    Trainer(net, o, [Schedule(hard, o), Timer()]).fit(train, val)
