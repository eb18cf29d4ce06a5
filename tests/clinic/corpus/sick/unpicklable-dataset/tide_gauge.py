# cause: unpicklable-dataset
"""Short-term surge forecast from tide gauges with curriculum on the forecast horizon."""
import itertools
import math
import multiprocessing
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONTEXT = 96


def curriculum(start, stop, growth):
    """Endless sequence of horizons: slowly longer, with a step back now and then."""
    h = float(start)
    for step in itertools.count():
        yield max(start, int(h * (0.6 if step % 5 == 4 else 1.0)))
        h = min(stop, h * growth)


class Gauge:
    def __init__(self, station, hours=24 * 365):
        rng = np.random.default_rng(station)
        t = np.arange(hours)
        tide = 1.2 * np.sin(2 * np.pi * t / 12.42 + station) + 0.3 * np.sin(2 * np.pi * t / 24 + station)
        surge = np.convolve(rng.normal(0, 0.2, hours), np.exp(-np.arange(48) / 12), "same")
        self.level = (tide + surge).astype(np.float32)


class SurgeWindows(Dataset):
    def __init__(self, stations, windows, horizons):
        self.gauges = [Gauge(s) for s in stations]
        self.windows = windows
        self.horizons = horizons
        self.horizon = next(horizons)

    def next_stage(self):
        self.horizon = next(self.horizons)

    def __len__(self):
        return self.windows

    def harmonics(self, series):
        t = np.arange(len(series))
        cols = [np.ones(len(series))]
        for period in (12.42, 12.0, 24.0, 25.82):
            cols += [np.sin(2 * np.pi * t / period), np.cos(2 * np.pi * t / period)]
        a = np.stack(cols, 1)
        coef, *_ = np.linalg.lstsq(a, series, rcond=None)
        return coef.astype(np.float32), (series - a @ coef).astype(np.float32)

    def __getitem__(self, i):
        g = self.gauges[i % len(self.gauges)].level
        at = (i * 7919) % (len(g) - CONTEXT - self.horizon)
        coef, rest = self.harmonics(g[at:at + CONTEXT])
        target = g[at + CONTEXT + self.horizon - 1]
        return torch.from_numpy(rest), torch.from_numpy(coef), self.horizon / 24, float(target)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CONTEXT + 10, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, rest, coef, horizon):
        return self.body(torch.cat([rest, coef, horizon[:, None].float()], 1)).squeeze(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    method = os.environ.get("SURGE_START_METHOD", "spawn")
    ds = SurgeWindows(range(6), 4000, curriculum(3, 36, 1.5))
    model = Forecaster()
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    loader = DataLoader(ds, 64, shuffle=True, num_workers=2, multiprocessing_context=multiprocessing.get_context(method))
    for stage in range(3):
        se = 0.0
        for rest, coef, horizon, target in loader:
            pred = model(rest, coef, horizon)
            loss = nn.functional.mse_loss(pred, target.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            se += loss.item()
        print(f"stage {stage} horizon {ds.horizon} h rmse {math.sqrt(se / len(loader)):.3f} m", flush=True)
        ds.next_stage()


if __name__ == "__main__":
    main()
