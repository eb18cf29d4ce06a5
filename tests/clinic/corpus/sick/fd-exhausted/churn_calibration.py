# cause: fd-exhausted
# limits: nofile=256
"""Customer churn model with an expected-calibration-error report after every epoch."""
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class Config:
    customers: int = 2400
    events: int = 400
    batch_size: int = 8
    workers: int = 2
    epochs: int = 3
    lr: float = 2e-3
    seed: int = 5


class EventLog(Dataset):
    """Aggregates a customer's raw event stream into a feature vector on access."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.kind = rng.integers(0, 24, size=(cfg.customers, cfg.events)).astype(np.int16)
        self.when = np.sort(rng.random((cfg.customers, cfg.events)).astype(np.float32), axis=1)
        self.region = rng.integers(0, 6, size=cfg.customers)
        self.churned = (self.kind[:, -40:] < 8).mean(1) + 0.05 * rng.standard_normal(cfg.customers) > 0.34

    def __len__(self):
        return len(self.churned)

    def __getitem__(self, i):
        kind, when = self.kind[i], self.when[i]
        feats = []
        for k in range(24):
            t = when[kind == k]
            gaps = np.diff(t) if len(t) > 1 else np.zeros(1)
            feats += [len(t), float(gaps.mean()), float(t[-1]) if len(t) else 0.0, float((t > 0.9).sum())]
        x = torch.tensor(feats, dtype=torch.float32)
        return x, torch.tensor(float(self.churned[i])), int(self.region[i])


@dataclass
class EpochReport:
    probs: list = field(default_factory=list)
    targets: list = field(default_factory=list)
    regions: list = field(default_factory=list)

    def add(self, logits, y, region):
        self.probs.append(torch.sigmoid(logits.detach()))
        self.targets.append(y)
        self.regions.append(region)

    def ece(self, bins=10):
        p, y = torch.cat(self.probs), torch.cat(self.targets)
        which = (p * bins).long().clamp(max=bins - 1)
        err = 0.0
        for b in range(bins):
            m = which == b
            if m.any():
                err += (m.float().mean() * (p[m].mean() - y[m].mean()).abs()).item()
        return err

    def by_region(self):
        r, y, p = torch.cat(self.regions), torch.cat(self.targets), torch.cat(self.probs)
        return {int(k): round(((p > 0.5).float() == y)[r == k].float().mean().item(), 3) for k in r.unique()}


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        full = EventLog(cfg)
        n_val = len(full) // 6
        g = torch.Generator().manual_seed(cfg.seed)
        train, val = random_split(full, [len(full) - n_val, n_val], generator=g)
        self.train_loader = self._loader(train, shuffle=True)
        self.val_loader = self._loader(val, shuffle=False)
        self.net = nn.Sequential(nn.BatchNorm1d(96), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.loss = nn.BCEWithLogitsLoss()

    def _loader(self, ds, shuffle):
        return DataLoader(ds, batch_size=self.cfg.batch_size, shuffle=shuffle, num_workers=self.cfg.workers,
                          persistent_workers=True, drop_last=shuffle)

    def run_epoch(self, loader, train):
        report = EpochReport()
        self.net.train(train)
        with torch.set_grad_enabled(train):
            for x, y, region in loader:
                logits = self.net(x).squeeze(1)
                if train:
                    loss = self.loss(logits, y)
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                report.add(logits, y, region)
        return report

    def fit(self):
        for epoch in range(self.cfg.epochs):
            tr = self.run_epoch(self.train_loader, True)
            va = self.run_epoch(self.val_loader, False)
            print(f"[{epoch}] train ECE {tr.ece():.3f}  val ECE {va.ece():.3f}  regions {va.by_region()}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Trainer(Config()).fit()
