# cause: workers-not-worth-it
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


@dataclass
class Conf:
    regions: int = 6
    hours: int = 3200
    history: int = 48
    horizon: int = 6
    batch: int = 12
    workers: int = 2


def simulate(region, hours):
    rng = np.random.default_rng(region)
    t = np.arange(hours)
    load = 10 + 3 * np.sin(2 * np.pi * t / 24 + region) + np.sin(2 * np.pi * t / 168) + 0.3 * rng.standard_normal(hours)
    return load.astype(np.float32)


class Windows(Dataset):
    """Sliding windows over one region's series."""

    def __init__(self, series, conf):
        self.series = torch.from_numpy((series - series.mean()) / series.std())
        self.h, self.f = conf.history, conf.horizon

    def __len__(self):
        return len(self.series) - self.h - self.f + 1

    def __getitem__(self, i):
        return self.series[i:i + self.h].clone(), self.series[i + self.h:i + self.h + self.f].clone()


class GRUCast(nn.Module):
    def __init__(self, conf):
        super().__init__()
        self.proj = nn.Linear(conf.history, 32)
        self.out = nn.Linear(32, conf.horizon)

    def forward(self, x):
        return self.out(torch.tanh(self.proj(x)))


class MeanMeter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def add(self, v):
        self.total += v
        self.n += 1

    @property
    def value(self):
        return self.total / max(self.n, 1)


def main():
    conf = Conf()
    torch.set_num_threads(1)
    data = ConcatDataset([Windows(simulate(r, conf.hours), conf) for r in range(conf.regions)])
    loader = DataLoader(data, conf.batch, shuffle=True, num_workers=conf.workers, drop_last=True)
    model = GRUCast(conf)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = MeanMeter()
    for step, (x, y) in enumerate(loader):
        loss = (model(x) - y).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.add(loss.item())
        if step % 400 == 399:
            print("step %d mae %.4f" % (step + 1, meter.value), flush=True)
            meter = MeanMeter()


if __name__ == "__main__":
    main()
