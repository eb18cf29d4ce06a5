# cause: socket-path-too-long
"""Soil moisture regression from probe profiles; every run keeps all it writes in a folder named after its settings."""
import argparse
import csv
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


def slug(settings):
    return "_".join(f"{k.replace('_', '-')}={v}" for k, v in sorted(settings.items()))


class Run:
    """Everything of one run, scratch included, under one directory that is easy to sync and to delete."""

    def __init__(self, base, settings):
        self.settings = settings
        self.dir = Path(base) / "soil-moisture-probe-regression" / slug(settings)
        for sub in ("checkpoints", "scratch", "profiles"):
            (self.dir / sub).mkdir(parents=True)

    def __enter__(self):
        self._previous = tempfile.tempdir
        tempfile.tempdir = str(self.dir / "scratch")
        return self

    def __exit__(self, *exc):
        tempfile.tempdir = self._previous

    def save(self, model, epoch):
        with tempfile.NamedTemporaryFile(delete=False) as part:
            torch.save(model.state_dict(), part)
        os.replace(part.name, self.dir / "checkpoints" / f"epoch{epoch}.pt")


def simulate(folder, count, depth):
    rng = np.random.default_rng(5)
    for i in range(count):
        base = rng.uniform(5, 40)
        with open(folder / f"probe{i:04d}.csv", "w", newline="") as fh:
            out = csv.writer(fh)
            out.writerow(["depth", "permittivity", "temp", "moisture"])
            for d in range(depth):
                m = base + 3 * np.sin(d / 9) + rng.normal(0, 0.3)
                out.writerow([d, round(3 + 0.4 * m + rng.normal(0, 0.2), 4), round(18 - d / 10, 2), round(m, 4)])


class ProbeProfiles(Dataset):
    def __init__(self, folder, columns=("permittivity", "temp")):
        self.files = sorted(folder.glob("*.csv"))
        self.columns = columns

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with open(self.files[i], newline="") as fh:
            rows = list(csv.DictReader(fh))
        x = torch.tensor([[float(r[c]) for c in self.columns] for r in rows])
        y = torch.tensor([float(r["moisture"]) for r in rows]).mean()
        x = (x - x.mean(0)) / (x.std(0) + 1e-5) + 0.1 * x
        return x.T.contiguous(), y


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        err = [(model(x).squeeze(1) - y).abs().mean().item() for x, y in loader]
    model.train()
    return sum(err) / len(err)


def fit(run, workers):
    s = run.settings
    data = ProbeProfiles(run.dir / "profiles")
    train, val = random_split(data, [len(data) - 40, 40], torch.Generator().manual_seed(0))
    loader = DataLoader(train, s["batch_size"], shuffle=True, num_workers=workers, persistent_workers=True)
    held_out = DataLoader(val, 20)
    model = nn.Sequential(nn.Conv1d(2, s["hidden_channels"], 7, stride=2), nn.GELU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
                          nn.Dropout(s["dropout"]), nn.Linear(4 * s["hidden_channels"], 1))
    opt = torch.optim.AdamW(model.parameters(), lr=s["learning_rate"], weight_decay=s["weight_decay"])
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        print(f"epoch {epoch} mae {evaluate(model, held_out):.3f}", flush=True)
        run.save(model, epoch)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--dropout", type=float, default=0.1)
    args = p.parse_args()
    torch.manual_seed(0)
    settings = dict(learning_rate=args.lr, dropout=args.dropout, weight_decay=0.01, batch_size=12, hidden_channels=32)
    base = tempfile.mkdtemp(prefix="runs")
    try:
        run = Run(base, settings)
        simulate(run.dir / "profiles", 240, 160)
        with run:
            fit(run, args.workers)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
