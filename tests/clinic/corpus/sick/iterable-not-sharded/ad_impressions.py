# cause: iterable-not-sharded
"""Click-through model over day files of impressions, streamed from disk."""
import argparse
import csv
import itertools
import os
import shutil
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

COLUMNS = ["id", "site", "campaign", "hour", "device", "bid", "clicked"]
BUCKETS = 4096


def export_days(folder, days, rows):
    rng = np.random.default_rng(404)
    serial = itertools.count()
    for day in range(days):
        with open(os.path.join(folder, f"impr-{day:03d}.csv"), "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(COLUMNS)
            for _ in range(rows):
                site, camp, hour = rng.integers(200), rng.integers(50), rng.integers(24)
                p = 1 / (1 + np.exp(-((site % 7) - 3) - ((camp % 5) - 2) * 0.5))
                w.writerow([next(serial), f"s{site}", f"c{camp}", hour, f"d{rng.integers(5)}", f"{rng.gamma(2.0):.5f}", int(rng.random() < p)])


class Manifest:
    """Which files this machine trains on."""

    def __init__(self, folder, rank=0, world=1):
        self.folder, self.rank, self.world = folder, rank, world

    @property
    def files(self):
        names = sorted(n for n in os.listdir(self.folder) if n.endswith(".csv"))
        return [os.path.join(self.folder, n) for n in names[self.rank::self.world]]


def hashed(row):
    keys = [f"{a}={row[a]}" for a in ("site", "campaign", "hour", "device")]
    keys += [f"{a}|{b}" for a, b in itertools.combinations(keys, 2)]
    return [zlib.crc32(k.encode()) % BUCKETS for k in keys]


class Impressions(IterableDataset):
    def __init__(self, manifest, decode=hashed):
        self.manifest = manifest
        self.decode = decode

    def rows(self, path):
        with open(path, newline="") as f:
            yield from csv.DictReader(f)

    def convert(self, row):
        time.sleep(0.001)
        return (torch.tensor(self.decode(row)), torch.tensor(float(row["bid"])), torch.tensor(float(row["clicked"])))

    def __iter__(self):
        stream = itertools.chain.from_iterable(map(self.rows, self.manifest.files))
        return map(self.convert, stream)


class WideAndDeep(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.wide = nn.EmbeddingBag(BUCKETS, 1, mode="sum")
        self.deep = nn.EmbeddingBag(BUCKETS, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(dim + 1, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def forward(self, ids, bid):
        h = torch.cat([self.deep(ids), bid[:, None]], 1)
        return (self.wide(ids) + self.mlp(h)).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--days", type=int, default=8)
    p.add_argument("--rows", type=int, default=150)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="impr_")
    try:
        export_days(folder, args.days, args.rows)
        data = Impressions(Manifest(folder, int(os.environ.get("NODE_RANK", 0)), int(os.environ.get("NODES", 1))))
        loader = DataLoader(data, batch_size=30, num_workers=args.workers, persistent_workers=True)
        model = WideAndDeep()
        opt = torch.optim.Adagrad(model.parameters(), 0.01)
        for epoch in range(args.epochs):
            running = steps = 0
            for ids, bid, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(ids, bid), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                running, steps = running + loss.item(), steps + 1
            print(f"epoch {epoch} log loss {running / steps:.4f} after {steps} steps", flush=True)
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "last.pt"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
