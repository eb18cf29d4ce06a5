# cause: wrong-length
"""Forecast of river levels: a day of hourly gauges and rain in, the next six hours out."""
import logging
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger("gauges")

SETTINGS = dict(stations=12, hours=900, context=168, horizon=6, step=2, epochs=3, batch=24, workers=2, lr=2e-3, seed=9)


def simulate(stations, hours, seed):
    g = np.random.default_rng(seed)
    rain = (g.random((stations, hours)) < 0.06) * g.gamma(2.0, 4.0, (stations, hours))
    level = np.zeros((stations, hours), np.float32)
    for s in range(stations):
        decay, area = g.uniform(0.9, 0.98), g.uniform(0.3, 2.0)
        for h in range(1, hours):
            level[s, h] = decay * level[s, h - 1] + area * rain[s, h - 1] * 0.1
    return level + g.normal(0, 0.02, level.shape).astype(np.float32), rain.astype(np.float32)


class Windowed(Dataset):
    """Base of everything cut in windows: subclasses set `series`, `hours`, `context`, `horizon` and `step`."""

    series = hours = context = horizon = step = 0
    overlap = 2

    @property
    def per_series(self):
        return (self.hours - self.context - self.horizon) // (self.step * self.overlap)

    def __len__(self):
        return self.series * self.per_series


class GaugeWindows(Windowed):
    def __init__(self, level, rain, context, horizon, step):
        self.level, self.rain = level, rain
        self.series, self.hours = level.shape
        self.context, self.horizon, self.step = context, horizon, step
        starts = np.arange(0, self.hours - context - horizon + 1, step)
        self.table = np.stack(np.meshgrid(np.arange(self.series), starts, indexing="ij"), -1).reshape(-1, 2)

    def wavelets(self, x):
        """Ricker responses at several widths: slow floods and flash floods look different."""
        rows = []
        for width in np.geomspace(1.5, 40, 60):
            t = np.arange(-80, 81) / width
            kernel = (1 - t * t) * np.exp(-0.5 * t * t)
            rows.append(np.convolve(x, kernel / width, mode="same")[:len(x)])
        return np.stack(rows)

    def __getitem__(self, i):
        s, a = self.table[i]
        b = a + self.context
        past, rain = self.level[s, a:b], self.rain[s, a:b]
        features = np.concatenate([past[None], rain[None], self.wavelets(past), self.wavelets(rain)]).astype(np.float32)
        return torch.from_numpy(features), torch.from_numpy(self.level[s, b:b + self.horizon].copy()), int(s)


class Forecaster(nn.Module):
    def __init__(self, channels, stations, horizon):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(channels, 24, 7, 3), nn.GELU(), nn.Conv1d(24, 24, 5, 2), nn.GELU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.station = nn.Embedding(stations, 8)
        self.out = nn.Linear(24 * 4 + 8, horizon)

    def forward(self, x, s):
        return x[:, 0, -1:] + self.out(torch.cat([self.conv(x), self.station(s)], 1))


def nash_sutcliffe(pred, true):
    return 1 - ((pred - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()


def loaders(c):
    level, rain = simulate(c["stations"], c["hours"], c["seed"])
    cut = dict(context=c["context"], horizon=c["horizon"])
    train = GaugeWindows(level[:, :-200], rain[:, :-200], step=c["step"], **cut)
    test = GaugeWindows(level[:, -200:], rain[:, -200:], step=8, **cut)
    logger.info("%d training windows, %d test windows", len(train), len(test))
    return (DataLoader(train, c["batch"], shuffle=True, num_workers=c["workers"], persistent_workers=True), DataLoader(test, c["batch"]))


def main(c):
    torch.manual_seed(c["seed"])
    torch.set_num_threads(1)
    train, test = loaders(c)
    model = Forecaster(122, c["stations"], c["horizon"])
    opt = torch.optim.AdamW(model.parameters(), c["lr"])
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, c["epochs"] * len(train))
    for epoch in range(c["epochs"]):
        t, total, n = time.time(), 0.0, 0
        for x, y, s in train:
            loss = nn.functional.smooth_l1_loss(model(x, s), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            plan.step()
            total, n = total + loss.item() * len(y), n + len(y)
        with torch.no_grad():
            pairs = [(model(x, s), y) for x, y, s in test]
        score = nash_sutcliffe(torch.cat([p for p, _ in pairs]), torch.cat([y for _, y in pairs]))
        logger.info("epoch %d: loss %.4f over %d windows, NSE %.3f, %.1f s", epoch, math.sqrt(total / n), n, score, time.time() - t)


if __name__ == "__main__":
    main(SETTINGS)
