# cause: iterable-not-sharded
"""Click-through prediction from daily log files, read as a stream."""
import csv
import hashlib
import os
import shutil
import tempfile
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SETTINGS = {
    "days": 5, "events_per_day": 60, "buckets": 4096, "dim": 32,
    "loader": {"batch_size": 20, "num_workers": 2, "persistent_workers": True},
    "optim": {"lr": 0.01}, "epochs": 2,
}


class Streamed(IterableDataset):
    """Makes a dataset from any zero-argument callable that returns an iterator."""

    def __init__(self, open_stream, *stages):
        self.open_stream = open_stream
        self.stages = stages

    def __iter__(self):
        flow = self.open_stream()
        for stage in self.stages:
            flow = stage(flow)
        return iter(flow)


def make_logs(folder, days, events):
    r = np.random.RandomState(4)
    paths = []
    for d in range(days):
        p = os.path.join(folder, f"2024-03-{d + 1:02d}.csv")
        with open(p, "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(["event", "user", "item", "context", "click"])
            for e in range(events):
                u, i = r.randint(200), r.randint(500)
                w.writerow([f"{d}-{e}", u, i, " ".join(f"c{r.randint(1000)}" for _ in range(20)), int((u * i) % 7 < 2)])
        paths.append(p)
    return paths


def read_events(paths):
    for p in paths:
        with open(p, newline="") as f:
            yield from csv.DictReader(f)


def bucket(text, buckets):
    h = text.encode()
    for _ in range(24):  # stretched hash, keeps raw ids out of the model
        h = hashlib.blake2b(h, digest_size=16).digest()
    return int.from_bytes(h[:8], "big") % buckets


def featurise(flow, buckets):
    for row in flow:
        fields = [f"u={row['user']}", f"i={row['item']}", f"ui={row['user']}x{row['item']}"]
        fields += row["context"].split()
        fields += [f"{row['user']}|{c}" for c in row["context"].split()]
        ids = torch.tensor([bucket(x, buckets) for x in fields])
        yield ids, float(row["click"])


class HashedModel(nn.Module):
    def __init__(self, buckets, dim):
        super().__init__()
        self.table = nn.EmbeddingBag(buckets, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(dim, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, ids):
        return self.mlp(self.table(ids)).squeeze(1)


def train(cfg):
    folder = tempfile.mkdtemp(prefix="clicks-")
    try:
        paths = make_logs(folder, cfg["days"], cfg["events_per_day"])
        stream = Streamed(partial(read_events, paths), partial(featurise, buckets=cfg["buckets"]))
        loader = DataLoader(stream, **cfg["loader"])
        model = HashedModel(cfg["buckets"], cfg["dim"])
        opt = torch.optim.Adagrad(model.parameters(), **cfg["optim"])
        loss_fn = nn.BCEWithLogitsLoss()
        for epoch in range(cfg["epochs"]):
            total = count = 0
            for ids, click in loader:
                loss = loss_fn(model(ids), click.float())
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                total += loss.item() * len(ids)
                count += len(ids)
            print(f"epoch {epoch}: {count} events, logloss {total / count:.4f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    train(SETTINGS)
