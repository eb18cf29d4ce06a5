# cause: result-not-picklable
"""Default prediction on mixed tabular data; batches carry the column names for the drift monitor."""
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMERIC = ("income", "age", "utilisation", "open_lines", "late_30", "late_60", "tenure", "balance")


@dataclass
class TabularBatch:
    x: torch.Tensor
    y: torch.Tensor
    columns: Any


class Applications(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.raw = {c: rng.gamma(2.0, 1.5, size=(n, 36)).astype(np.float32) for c in NUMERIC}
        risk = self.raw["late_60"].mean(1) - self.raw["income"].mean(1) + rng.normal(0, 0.2, n)
        self.default = (risk > 0).astype(np.float32)

    def __len__(self):
        return len(self.default)

    def __getitem__(self, i):
        row = {}
        for name, table in self.raw.items():
            months = table[i]
            row[f"{name}_mean"] = float(months.mean())
            row[f"{name}_trend"] = float(np.polyfit(np.arange(36), months, 1)[0])
            row[f"{name}_p90"] = float(np.percentile(months, 90))
        return row, self.default[i]


def to_batch(samples):
    rows, targets = zip(*samples)
    merged = defaultdict(list)
    for row in rows:
        for k, v in row.items():
            merged[k].append(v)
    x = torch.tensor(list(merged.values()), dtype=torch.float32).T.contiguous()
    return TabularBatch(x, torch.tensor(np.array(targets)), merged.keys())


class DriftMonitor:
    """Exponential averages per column, compared with the first epoch."""

    def __init__(self, decay=0.98):
        self.decay, self.avg = decay, {}

    def update(self, batch):
        for name, value in zip(batch.columns, batch.x.mean(0).tolist()):
            old = self.avg.get(name, value)
            self.avg[name] = self.decay * old + (1 - self.decay) * value

    def top(self, n=3):
        return sorted(self.avg.items(), key=lambda kv: -abs(kv[1]))[:n]


class Experiment:
    def __init__(self, workers=2):
        make = lambda ds, shuffle: DataLoader(ds, batch_size=40, shuffle=shuffle, num_workers=workers,
                                              collate_fn=to_batch)
        self.train, self.val = make(Applications(2400, 1), True), make(Applications(400, 2), False)
        self.net = nn.Sequential(nn.Linear(3 * len(NUMERIC), 32), nn.ReLU(), nn.Linear(32, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.monitor = DriftMonitor()

    def step(self, batch):
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(batch.x).squeeze(1), batch.y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.monitor.update(batch)
        return loss.item()

    @torch.no_grad()
    def accuracy(self):
        hits = sum(((self.net(b.x).squeeze(1) > 0) == (b.y > 0.5)).sum().item() for b in self.val)
        return hits / len(self.val.dataset)

    def run(self, epochs=3):
        for epoch in range(epochs):
            losses = [self.step(b) for b in self.train]
            print(f"epoch {epoch} loss {np.mean(losses):.4f} val {self.accuracy():.3f} drift {self.monitor.top()}",
                  flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Experiment().run()
