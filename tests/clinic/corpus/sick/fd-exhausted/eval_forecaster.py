# cause: fd-exhausted
# limits: nofile=256
"""Load forecasting with a GRU, evaluated over a rolling horizon."""
import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MeterSeries:
    def __init__(self, meters: int, hours: int):
        t = np.arange(hours)
        rng = np.random.default_rng(5)
        phase = rng.uniform(0, math.tau, (meters, 1))
        daily = np.sin(t * math.tau / 24 + phase)
        weekly = 0.3 * np.cos(t * math.tau / 168 + 2 * phase)
        self.values = (daily + weekly + 0.1 * rng.standard_normal((meters, hours))).astype(np.float32)


class RollingWindows(Dataset):
    def __init__(self, series: MeterSeries, history: int, horizon: int, start: float, stop: float):
        self.v = series.values
        self.history, self.horizon = history, horizon
        hours = self.v.shape[1]
        lo, hi = int(hours * start), int(hours * stop) - history - horizon
        self.index = [(m, s) for m in range(self.v.shape[0]) for s in range(lo, hi, 3)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        m, s = self.index[i]
        time.sleep(0.001)
        window = self.v[m, s:s + self.history + self.horizon]
        mu, sd = window[:self.history].mean(), window[:self.history].std() + 1e-4
        z = torch.tensor((window - mu) / sd)
        return z[:self.history].view(-1, 4), z[self.history:], torch.tensor([mu, sd])


class Forecaster(nn.Module):
    def __init__(self, horizon):
        super().__init__()
        self.rnn = nn.GRU(4, 24, batch_first=True)
        self.head = nn.Linear(24, horizon)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[-1])


class RollingMetrics:
    def __init__(self):
        self.rows = []

    def update(self, prediction, batch):
        self.rows.append((prediction, batch))

    def compute(self):
        err = [(p - y).abs() * s[:, 1:] for p, (_, y, s) in self.rows]
        return torch.cat(err).mean().item()


def fit(model, loader, opt):
    model.train()
    for x, y, _ in loader:
        loss = nn.functional.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    metrics = RollingMetrics()
    for batch in loader:
        metrics.update(model(batch[0]), batch)
    return metrics.compute()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--history", type=int, default=48)
    ap.add_argument("--horizon", type=int, default=12)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    series = MeterSeries(meters=6, hours=24 * 60)
    train = RollingWindows(series, a.history, a.horizon, 0.0, 0.5)
    test = RollingWindows(series, a.history, a.horizon, 0.5, 1.0)
    train_loader = DataLoader(train, 48, shuffle=True, num_workers=2)
    test_loader = DataLoader(test, 12, num_workers=2)
    model = Forecaster(a.horizon)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch in range(a.epochs):
        loss = fit(model, train_loader, opt)
        print(f"epoch {epoch} train {loss:.3f}", flush=True)
        print(f"epoch {epoch} test mae {evaluate(model, test_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
