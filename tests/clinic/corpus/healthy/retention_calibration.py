# limits: nofile=256
"""Subscriber retention with a calibration report; per-epoch results are gathered over several hundred batches."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class Config:
    users: int = 2000
    events: int = 1500
    batch_size: int = 8
    workers: int = 2
    epochs: int = 3
    seed: int = 15


class UsageLog(Dataset):
    KINDS = 40

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.kind = rng.integers(0, self.KINDS, size=(cfg.users, cfg.events)).astype(np.int16)
        self.when = np.sort(rng.random((cfg.users, cfg.events)).astype(np.float32), axis=1)
        self.left = ((self.kind[:, -60:] < 12).mean(1) > 0.3).astype(np.float32)

    def __len__(self):
        return len(self.left)

    def __getitem__(self, i):
        kind, when = self.kind[i], self.when[i]
        feats = []
        for k in range(self.KINDS):
            t = when[kind == k]
            gaps = np.diff(t) if len(t) > 1 else np.zeros(1)
            feats += [len(t) / 40, float(np.median(gaps)), float(gaps.std()), float((t > 0.95).sum())]
        return torch.tensor(feats, dtype=torch.float32), float(self.left[i])


class Calibration:
    def __init__(self):
        self.p, self.y = [], []

    def add(self, logits, y):
        self.p.extend(torch.sigmoid(logits.detach()).tolist())
        self.y.extend(y.tolist())

    def ece(self, bins=10):
        p, y = np.array(self.p), np.array(self.y)
        which = np.minimum((p * bins).astype(int), bins - 1)
        return sum((which == b).mean() * abs(p[which == b].mean() - y[which == b].mean())
                   for b in range(bins) if (which == b).any())


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        full = UsageLog(cfg)
        n_val = len(full) // 8
        train, val = random_split(full, [len(full) - n_val, n_val])
        self.loaders = {
            "train": DataLoader(train, cfg.batch_size, shuffle=True, drop_last=True, num_workers=cfg.workers,
                                persistent_workers=True),
            "val": DataLoader(val, cfg.batch_size, num_workers=cfg.workers, persistent_workers=True),
        }
        width = 4 * UsageLog.KINDS
        self.net = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def run(self, split):
        train, report = split == "train", Calibration()
        self.net.train(train)
        with torch.set_grad_enabled(train):
            for x, y in self.loaders[split]:
                logits = self.net(x).squeeze(1)
                if train:
                    loss = nn.functional.binary_cross_entropy_with_logits(logits, y.float())
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                report.add(logits, y)
        return report

    def fit(self):
        for epoch in range(self.cfg.epochs):
            a, b = self.run("train"), self.run("val")
            print(f"[{epoch}] ECE train {a.ece():.3f} val {b.ece():.3f} ({len(a.y)} + {len(b.y)} users)", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Trainer(Config()).fit()
