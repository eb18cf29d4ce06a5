"""Storm surge from lighthouse journals, streamed from day files through a mixing buffer."""
import argparse
import csv
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class JournalReader:
    """Rows of the files it was given, one after the other."""

    def __init__(self, shards):
        self.shards = list(shards)

    def rows(self):
        for path in self.shards:
            time.sleep(0.01)
            with open(path, newline="") as f:
                for row in csv.DictReader(f):
                    time.sleep(0.0015)
                    wind, gust, fetch, period = (float(row[k]) for k in ("wind", "gust", "fetch", "period"))
                    yield np.array([wind, gust, fetch, period, gust / (wind + 0.1)], np.float32), np.float32(row["height"])


class Mixed(IterableDataset):
    """A reader behind a buffer from which rows are taken at random."""

    def __init__(self, shards, buffer=64):
        self.reader = JournalReader(shards)
        self.buffer = buffer

    def __iter__(self):
        rng = random.Random(int(torch.randint(2 ** 31, ())))
        held = []
        for row in self.reader.rows():
            if len(held) < self.buffer:
                held.append(row)
                continue
            k = rng.randrange(self.buffer)
            row, held[k] = held[k], row
            yield row
        rng.shuffle(held)
        yield from held


def divide(worker_id):
    info = get_worker_info()
    reader = info.dataset.reader
    reader.shards = reader.shards[worker_id::info.num_workers]


def write_journals(folder: Path, hours: int, files: int):
    rng = np.random.default_rng(19)
    for k in range(files):
        with open(folder / f"day{k:03d}.csv", "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(["wind", "gust", "fetch", "period", "height"])
            for _ in range(hours):
                wind, fetch = rng.gamma(3, 3), rng.uniform(5, 80)
                gust, period = wind * rng.uniform(1.1, 1.8), rng.uniform(2, 12)
                w.writerow([f"{v:.3f}" for v in (wind, gust, fetch, period, 0.02 * wind * np.sqrt(fetch) + 0.05 * period)])


class SurgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.BatchNorm1d(5)
        self.net = nn.Sequential(nn.Linear(5, 1024), nn.SiLU(), nn.Linear(1024, 1536), nn.SiLU(), nn.Linear(1536, 1))

    def forward(self, x):
        return self.net(self.scale(x)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--files", type=int, default=12)
    ap.add_argument("--hours", type=int, default=60)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        write_journals(Path(tmp), args.hours, args.files)
        data = Mixed(sorted(Path(tmp).glob("*.csv")))
        loader = DataLoader(data, batch_size=16, num_workers=args.workers, worker_init_fn=divide, persistent_workers=True)
        model = SurgeNet()
        opt = torch.optim.Adam(model.parameters(), 5e-4)
        for epoch in range(args.epochs):
            losses, rows = [], 0
            for x, y in loader:
                loss = nn.functional.huber_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                rows += len(y)
            print(f"epoch {epoch}: {rows} rows, loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
