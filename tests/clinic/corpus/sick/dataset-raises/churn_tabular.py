# cause: dataset-raises
# also: bad-sample
"""Customer churn from a CSV export: categorical codes + scaled numbers, small MLP."""
import csv
import os
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PLANS = ["basic", "plus", "family", "business"]
CITIES = [f"city{i:02d}" for i in range(30)]


@dataclass
class Config:
    rows: int = 1200
    batch: int = 32
    workers: int = 2
    lr: float = 1e-3


class Encoder:
    def __init__(self, columns):
        self.columns = columns
        self.codes = {c: {} for c in columns}

    def fit(self, rows):
        for r in rows:
            for c in self.columns:
                self.codes[c].setdefault(r[c], len(self.codes[c]))
        return self

    def __call__(self, row):
        return torch.tensor([self.codes[c][row[c]] for c in self.columns])

    @property
    def sizes(self):
        return [len(v) for v in self.codes.values()]


class Customers(Dataset):
    numbers = ("tenure", "fee", "calls")

    def __init__(self, rows, encoder):
        self.rows, self.encoder = rows, encoder
        x = np.array([[float(r[n]) for n in self.numbers] for r in rows])
        self.mean, self.std = x.mean(0), x.std(0)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        time.sleep(0.001)
        num = (np.array([float(r[n]) for n in self.numbers]) - self.mean) / self.std
        return self.encoder(r), torch.from_numpy(num.astype(np.float32)), float(r["churned"])


class ChurnNet(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(s, 8) for s in sizes)
        self.mlp = nn.Sequential(nn.Linear(8 * len(sizes) + 3, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, cat, num):
        parts = [t(cat[:, k]) for k, t in enumerate(self.tables)]
        return self.mlp(torch.cat(parts + [num], 1)).squeeze(1)


def export(path, n):
    rng = np.random.default_rng(8)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["plan", "city", "tenure", "fee", "calls", "churned"])
        for i in range(n):
            city = CITIES[int(rng.integers(30))] if i != 1011 else "City 7"
            w.writerow([PLANS[int(rng.integers(4))], city, int(rng.integers(1, 90)), round(float(rng.gamma(3, 10)), 2), int(rng.integers(9)), int(rng.random() < 0.2)])


def main(cfg):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "export.csv")
        export(path, cfg.rows)
        with open(path, newline="") as f:
            rows = list(csv.DictReader(f))
    data = Customers(rows, Encoder(["plan", "city"]).fit(rows[:800]))
    train, val = random_split(data, [1100, 100], generator=torch.Generator().manual_seed(2))
    net = ChurnNet(data.encoder.sizes)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    for k, (cat, num, y) in enumerate(DataLoader(train, cfg.batch, shuffle=True, num_workers=cfg.workers)):
        loss = nn.functional.binary_cross_entropy_with_logits(net(cat, num), y.float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if k % 5 == 0:
            print(f"{k} {loss.item():.4f}", flush=True)
    hits = sum(((net(c, n) > 0) == (y > 0.5)).sum().item() for c, n, y in DataLoader(val, 50))
    print("val accuracy", hits / len(val))


if __name__ == "__main__":
    main(Config(workers=int(sys.argv[1])) if len(sys.argv) > 1 else Config())
