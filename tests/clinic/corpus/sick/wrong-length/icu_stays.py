# cause: wrong-length
# also: dataset-raises
# arguments: --epochs 2
"""Mortality risk from vital signs of intensive care stays, several hospitals."""
import argparse
import csv
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

REGISTRY = {}


def register(name):
    def wrap(cls):
        REGISTRY[name] = cls
        return cls
    return wrap


@dataclass(frozen=True)
class Stay:
    patient: int
    hours: int
    died: int


def export(folder: Path, hospital: str, n: int, seed: int):
    g = np.random.default_rng(seed)
    with open(folder / f"{hospital}.csv", "w", newline="") as f:
        table = csv.writer(f)
        table.writerow(["patient", "hours", "died"])
        for i in range(n):
            table.writerow([i, int(g.integers(3, 96)), int(g.random() < 0.3)])
    return folder / f"{hospital}.csv"


@register("hospital")
class Hospital(Dataset):
    """Stays of one hospital. The first `hours` of each are used, so shorter stays do not qualify."""

    def __init__(self, table: Path, hours: int = 12):
        with open(table) as f:
            self.rows = [Stay(int(r["patient"]), int(r["hours"]), int(r["died"])) for r in csv.DictReader(f)]
        self.hours = hours
        self.eligible = [s for s in self.rows if s.hours >= hours]
        self.salt = len(table.name)

    def __len__(self):
        return len(self.rows)

    def signals(self, stay):
        g = np.random.default_rng([self.salt, stay.patient])
        x = g.standard_normal((6, self.hours * 360)).cumsum(1) * 0.05 + stay.died * 0.4
        return x

    def features(self, x):
        view = np.lib.stride_tricks.sliding_window_view(x, 60, axis=1)[:, ::6]
        parts = [np.median(view, -1), view.std(-1), np.percentile(view, 90, axis=-1)]
        return np.concatenate([p[:, : 640].reshape(6, -1, p.shape[1] // 12)[:, :12].mean(-1) if p.shape[1] % 12 == 0 else
                               p[:, : p.shape[1] // 12 * 12].reshape(6, 12, -1).mean(-1) for p in parts])

    def __getitem__(self, i):
        stay = self.eligible[i]
        return torch.tensor(self.features(self.signals(stay)), dtype=torch.float32), torch.tensor(float(stay.died))


@register("pool")
class Pool(Dataset):
    def __init__(self, members):
        self.members = list(members)
        self.ends = list(accumulate(len(m) for m in self.members))

    def __len__(self):
        return self.ends[-1]

    def __getitem__(self, i):
        k = bisect_right(self.ends, i)
        return self.members[k][i - (self.ends[k - 1] if k else 0)]


class Risk(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(18, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.gru(x.transpose(1, 2))[0][:, -1]).squeeze(-1)


def make_loaders(folder, workers):
    tables = [export(folder, name, n, seed) for seed, (name, n) in enumerate([("north", 120), ("lakeside", 90), ("stmary", 60)])]
    pool = REGISTRY["pool"](REGISTRY["hospital"](t) for t in tables)
    sampler = RandomSampler(pool, generator=torch.Generator().manual_seed(11))
    return {"train": DataLoader(pool, batch_size=16, sampler=sampler, num_workers=workers)}


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=2)
    cli.add_argument("--workers", type=int, default=2)
    args = cli.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        loaders = make_loaders(Path(tmp), args.workers)
    model = Risk()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(args.epochs):
        losses = []
        for x, y in loaders["train"]:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {np.mean(losses):.3f}", flush=True)


if __name__ == "__main__":
    main()
