"""River gauge forecasting, trained for a number of steps rather than epochs, with two sources of windows."""
import argparse
import csv
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_gauges(folder, count, rows):
    g = torch.Generator().manual_seed(0)
    for c in range(count):
        level = torch.randn(rows, generator=g).cumsum(0) * 0.1 + 5
        rain = torch.rand(rows, generator=g)
        with open(os.path.join(folder, f"gauge{c:02d}.csv"), "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(["hour", "level", "rain"])
            w.writerows(zip(range(rows), level.tolist(), rain.tolist()))


class GaugeWindows(Dataset):
    def __init__(self, folder, gauges, rows, length):
        self.paths = [os.path.join(folder, f"gauge{g:02d}.csv") for g in gauges]
        self.rows, self.length = rows, length
        self.per = rows - length - 1

    def __len__(self):
        return len(self.paths) * self.per

    def __getitem__(self, i):
        gauge, start = divmod(i, self.per)
        with open(self.paths[gauge], newline="") as f:
            table = [(float(r["level"]), float(r["rain"])) for r in csv.DictReader(f)]
        window = torch.tensor(table[start:start + self.length])
        return window - window[-1:, :], torch.tensor(table[start + self.length][0] - table[start + self.length - 1][0])


class Endless:
    """Batches without end: starts the next pass when the current one is used up."""

    def __init__(self, loader):
        self.loader = loader
        self.passes = 0
        self.current = None

    def __iter__(self):
        return self

    def __next__(self):
        if self.current is None:
            self.current = iter(self.loader)
        try:
            return next(self.current)
        except StopIteration:
            self.passes += 1
            self.current = iter(self.loader)
            return next(self.current)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[1][-1]).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--rows", type=int, default=340)
    p.add_argument("--device-ms", type=float, default=35)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_gauges(folder, 8, args.rows)
        options = dict(batch_size=16, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)
        upper = Endless(DataLoader(GaugeWindows(folder, range(0, 2), args.rows, 24), **options))
        lower = Endless(DataLoader(GaugeWindows(folder, range(2, 8), args.rows, 24), **options))
        net = Forecaster()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        began = time.time()
        for step in range(1, args.steps + 1):
            x, y = next(upper if step % 2 else lower)
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(args.device_ms / 1000)
            if step % 30 == 0:
                print(f"step {step} loss {loss.item():.4f} passes {upper.passes}/{lower.passes} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
