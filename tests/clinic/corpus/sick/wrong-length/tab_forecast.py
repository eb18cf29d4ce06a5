# cause: wrong-length
"""Electricity load forecasting from a folder of meter files."""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def simulate_meters(folder, meters, hours):
    rs = np.random.RandomState(8)
    for m in range(meters):
        t = np.arange(hours)
        load = 5 + np.sin(2 * np.pi * t / 24 + m) + 0.4 * np.sin(2 * np.pi * t / 168) + rs.normal(0, .2, hours)
        np.savetxt(os.path.join(folder, f"meter_{m:02d}.csv"), load, fmt="%.4f")


class MeterWindows(Dataset):
    """(past, future) pairs; one file is parsed per access, windows are cut from it."""

    def __init__(self, folder, past=72, future=24, stride=12, batch_size=16):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.past, self.future, self.stride = past, future, stride
        self.batch_size = batch_size
        self.table = []
        for f_id, path in enumerate(self.files):
            with open(path) as fh:
                n = sum(1 for _ in fh)
            for start in range(0, n - past - future + 1, stride):
                self.table.append((f_id, start))

    def __len__(self):
        return (len(self.table) + self.batch_size - 1) // self.batch_size

    def __getitem__(self, i):
        f_id, start = self.table[i]
        series = np.loadtxt(self.files[f_id], dtype=np.float32)
        x = series[start:start + self.past]
        y = series[start + self.past:start + self.past + self.future]
        mean, std = x.mean(), x.std() + 1e-6
        return torch.from_numpy((x - mean) / std), torch.from_numpy((y - mean) / std)


class Forecaster(nn.Module):
    def __init__(self, past, future, hidden=256):
        super().__init__()
        self.trend = nn.Linear(past, future)
        self.rest = nn.Sequential(nn.Linear(past, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, future))

    def forward(self, x):
        return self.trend(x) + self.rest(x)


class EarlyStop:
    def __init__(self, patience):
        self.best, self.left, self.patience = float("inf"), patience, patience

    def __call__(self, value):
        if value < self.best - 1e-4:
            self.best, self.left = value, self.patience
        else:
            self.left -= 1
        return self.left <= 0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meters", type=int, default=12)
    ap.add_argument("--hours", type=int, default=1200)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        simulate_meters(folder, args.meters, args.hours)
        data = MeterWindows(folder, batch_size=args.batch_size)
        loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
        model = Forecaster(data.past, data.future)
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        stop = EarlyStop(3)
        for epoch in range(args.epochs):
            total, seen = 0.0, 0
            for x, y in loader:
                loss = nn.functional.smooth_l1_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total, seen = total + loss.item() * len(x), seen + len(x)
            print(f"epoch {epoch:2d} loss {total / seen:.4f}", flush=True)
            if stop(total / seen):
                break


if __name__ == "__main__":
    main()
