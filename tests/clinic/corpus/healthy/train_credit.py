"""Credit scoring on a table held in memory."""
import argparse
import csv
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

NAMES = ["age", "income", "debt", "late", "years"]


def export(path, n):
    rng = np.random.default_rng(6)
    with open(path, "w", newline="") as fh:
        out = csv.writer(fh)
        out.writerow(NAMES + ["default"])
        for _ in range(n):
            row = [int(rng.integers(18, 80)), int(rng.lognormal(10, 0.5)), int(rng.lognormal(8, 1)), int(rng.poisson(1)), int(rng.integers(0, 30))]
            out.writerow(row + [int(row[2] * (1 + row[3]) > row[1])])


class Applications(Dataset):
    """Rows are fetched in whole batches: the sampler yields lists of indices."""

    SCALE = {"income": lambda v: np.log1p(v), "debt": lambda v: np.log1p(v)}

    def __init__(self, path):
        with open(path, newline="") as fh:
            rows = list(csv.DictReader(fh))
        columns = [np.array([float(r[k]) for r in rows]) for k in NAMES]
        columns = [self.SCALE.get(k, lambda v: v)(c) for k, c in zip(NAMES, columns)]
        x = np.stack(columns, 1)
        self.x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
        self.y = torch.tensor([float(r["default"]) for r in rows])
        self.reads, self._lock = 0, threading.Lock()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, indices):
        with self._lock:
            self.reads += 1
        return self.x[indices], self.y[indices]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=20000)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--epochs", type=int, default=6)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "applications.csv"
        export(path, a.rows)
        data = Applications(path)
    order = BatchSampler(RandomSampler(data), a.batch, drop_last=False)
    loader = DataLoader(data, sampler=order, batch_size=None, num_workers=0)
    model = nn.Sequential(nn.Linear(5, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    opt = torch.optim.AdamW(model.parameters(), 2e-3)
    for epoch in range(a.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} ({data.reads} reads)", flush=True)


if __name__ == "__main__":
    main()
