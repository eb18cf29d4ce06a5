"""Sleep staging from log-covariances of polysomnography windows."""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

CHANNELS, WINDOW, STAGES = 64, 256, 5


class LogCovariance:
    def __init__(self, shrink=0.1):
        self.shrink = shrink
        self.rows, self.cols = np.triu_indices(CHANNELS)

    def __call__(self, w):
        w = (w - w.mean(1, keepdims=True)) / (w.std(1, keepdims=True) + 1e-6)
        cov = (1 - self.shrink) * (w @ w.T) / w.shape[1] + self.shrink * np.eye(CHANNELS)
        values, vectors = np.linalg.eigh(cov)
        log = (vectors * np.log(values)) @ vectors.T
        return torch.from_numpy(log[self.rows, self.cols].astype(np.float32))


class Night(Dataset):
    def __init__(self, windows, transform, seed=0):
        rng = np.random.default_rng(seed)
        self.signal = rng.standard_normal((CHANNELS, 40_000))
        self.start = rng.integers(0, 40_000 - WINDOW, windows)
        self.stage = rng.integers(0, STAGES, windows)
        self.transform = transform

    def __len__(self):
        return len(self.start)

    def __getitem__(self, i):
        w = self.signal[:, self.start[i] : self.start[i] + WINDOW].copy()
        s = int(self.stage[i])
        w[s * 8 : s * 8 + 8] += 0.8 * w[56:64]
        return self.transform(w), s


class Stager(nn.Module):
    def __init__(self, width=1536):
        super().__init__()
        d = CHANNELS * (CHANNELS + 1) // 2
        self.net = nn.Sequential(nn.Linear(d, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, STAGES))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self):
        night = Night(1000, LogCovariance())
        kw = dict(batch_size=20, num_workers=2, persistent_workers=True)
        self.train = DataLoader(Subset(night, range(880)), shuffle=True, **kw)
        self.valid = DataLoader(Subset(night, range(880, 1000)), **kw)
        self.model = Stager()
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-4)

    def epoch(self):
        self.model.train()
        for x, s in self.train:
            loss = nn.functional.cross_entropy(self.model(x), s, label_smoothing=0.05)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        return sum((self.model(x).argmax(1) == s).sum().item() for x, s in self.valid) / len(self.valid.dataset)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer()
    for epoch in range(4):
        t0 = time.time()
        loss = trainer.epoch()
        print(f"epoch {epoch} loss {loss:.3f} acc {trainer.accuracy():.3f} {time.time() - t0:.1f}s", flush=True)
