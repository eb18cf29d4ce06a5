# cause: tensor-freed-while-pickling
"""Storm-surge forecast from tide gauges."""
import argparse
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Series:
    """A long record held as float64 for exact differencing; travels as half precision."""

    def __init__(self, values):
        self.values = np.asarray(values, np.float64)

    @classmethod
    def read(cls, path):
        return cls(np.frombuffer(zlib.decompress(Path(path).read_bytes()), "<f4"))

    def __reduce__(self):
        return Series.unpack, (torch.from_numpy(self.values).half(),)

    @staticmethod
    def unpack(half):
        return Series(half.double().numpy())

    def window(self, start, length):
        return self.values[start:start + length]


class Gauge:
    def __init__(self, name, path):
        self.name = name
        self.series = Series.read(path)


class SurgeWindows(Dataset):
    def __init__(self, gauges, past=192, ahead=12, stride=24):
        self.gauges, self.past, self.ahead = gauges, past, ahead
        self.index = [(g, s) for g, gauge in enumerate(gauges)
                      for s in range(0, len(gauge.series.values) - past - ahead, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        g, start = self.index[i]
        w = self.gauges[g].series.window(start, self.past + self.ahead)
        tide = np.zeros_like(w)
        t = np.arange(start, start + len(w))
        for period in (12.42, 12.0, 25.82, 23.93):        # take out the main constituents
            basis = np.stack([np.sin(2 * np.pi * t / period), np.cos(2 * np.pi * t / period)], 1)
            coef, *_ = np.linalg.lstsq(basis[: self.past], w[: self.past] - tide[: self.past], rcond=None)
            tide += basis @ coef
        residual = torch.from_numpy(w - tide).float()
        return residual[: self.past], residual[self.past:]


class Forecaster(nn.Module):
    def __init__(self, ahead, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(4, hidden, batch_first=True)
        self.out = nn.Linear(hidden, ahead)

    def forward(self, x):
        return self.out(self.rnn(x.unflatten(1, (-1, 4)))[0][:, -1])


def simulate(root, stations, hours):
    rng = np.random.default_rng(12)
    t = np.arange(hours)
    for k in range(stations):
        surge = np.convolve(rng.normal(0, 0.2, hours), np.ones(10) / 3, "same")
        level = np.sin(2 * np.pi * t / 12.42 + k) + 0.3 * np.cos(2 * np.pi * t / 23.93) + surge
        (root / f"station{k}.z").write_bytes(zlib.compress(level.astype("<f4").tobytes()))


def loaders(data, args):
    cut = int(len(data) * 0.8)
    train = DataLoader(Subset(data, range(cut)), args.batch, shuffle=True, num_workers=args.workers,
                       multiprocessing_context="spawn", persistent_workers=True)
    return train, DataLoader(Subset(data, range(cut, len(data))), args.batch)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--stations", type=int, default=3)
    p.add_argument("--hours", type=int, default=6000)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        simulate(Path(tmp), args.stations, args.hours)
        gauges = [Gauge(f.stem, f) for f in sorted(Path(tmp).glob("*.z"))]
        data = SurgeWindows(gauges)
        train, val = loaders(data, args)
        model = Forecaster(data.ahead)
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(args.epochs):
            for x, y in train:
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
            with torch.no_grad():
                score = np.mean([nn.functional.mse_loss(model(x), y).item() for x, y in val])
            print(f"epoch {epoch} train {loss.item():.4f} val {score:.4f}", flush=True)


if __name__ == "__main__":
    main()
