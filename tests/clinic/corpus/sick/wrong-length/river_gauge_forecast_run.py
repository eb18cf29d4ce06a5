# cause: wrong-length
"""Six hour ahead water level of river gauges from a week of levels and rain."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Gauge:
    """Hourly levels and rain of one gauge."""

    def __init__(self, number, hours):
        rng = np.random.default_rng(number)
        rain = rng.gamma(0.08, 6.0, hours)
        kernel = np.exp(-np.arange(240) / rng.uniform(20, 60))
        flow = np.convolve(rain, kernel)[:hours]
        season = np.sin(2 * np.pi * np.arange(hours) / 8760 + rng.uniform(0, 6))
        self.level = (np.log1p(flow) + 0.3 * season + 0.02 * rng.standard_normal(hours)).astype(np.float32)
        self.rain = rain.astype(np.float32)
        self.name = f"gauge-{number:02d}"


class WindowDataset(Dataset):
    """Windows of one gauge: `history` hours go in, the level `ahead` hours later comes out."""

    def __init__(self, gauge, history=168, ahead=6, hop=24):
        self.gauge, self.history, self.ahead = gauge, history, ahead
        self.starts = np.arange(0, len(gauge.level) - history - ahead + 1, hop)

    @property
    def span(self):
        return self.history + self.ahead

    def __len__(self):
        return len(self.gauge.level) // self.span

    def scalogram(self, series):
        rows = []
        for width in (3, 6, 12, 24, 48, 72):
            t = np.arange(-width, width + 1)
            wavelet = np.exp(-(t / width * 2.5) ** 2) * np.cos(5 * t / width)
            rows.append(np.convolve(series, wavelet, mode="same") / np.sqrt(width))
            rows.append(np.convolve(series, np.ones(width) / width, mode="same"))
        return np.stack(rows)

    def __getitem__(self, index):
        start = self.starts[index]
        stop = start + self.history
        level, rain = self.gauge.level[start:stop], self.gauge.rain[start:stop]
        ranks = np.argsort(np.argsort(level)) / self.history
        lagged = np.lib.stride_tricks.sliding_window_view(level, 48)
        hours = np.arange(48) - 23.5
        trend = (lagged * hours).sum(1) / (hours ** 2).sum()
        trend = np.concatenate([np.full(47, trend[0]), trend])
        features = np.concatenate([self.scalogram(level - level[-1]), self.scalogram(np.log1p(rain)), ranks[None], trend[None]])
        change = self.gauge.level[stop + self.ahead - 1] - level[-1]
        return torch.from_numpy(features.astype(np.float32)), torch.tensor(change)


class Forecaster(nn.Module):
    def __init__(self, features=26, hidden=32):
        super().__init__()
        self.reduce = nn.Conv1d(features, hidden, 5, stride=3)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = torch.relu(self.reduce(x)).transpose(1, 2)
        return self.out(self.rnn(h)[0][:, -1]).squeeze(1)


def build_loaders(args):
    gauges = [Gauge(number, args.hours) for number in range(args.gauges)]
    held_out = max(1, args.gauges // 6)
    train = ConcatDataset([WindowDataset(g) for g in gauges[held_out:]])
    val = ConcatDataset([WindowDataset(g) for g in gauges[:held_out]])
    options = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=args.workers > 0)
    return DataLoader(train, shuffle=True, **options), DataLoader(val, **options)


def step_through(model, loader, optimizer=None):
    model.train(optimizer is not None)
    errors = []
    with torch.set_grad_enabled(optimizer is not None):
        for features, change in loader:
            loss = nn.functional.mse_loss(model(features), change)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            errors.append(loss.item())
    return float(np.mean(errors))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gauges", type=int, default=12)
    parser.add_argument("--hours", type=int, default=2 * 8760)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(7)
    train_loader, val_loader = build_loaders(args)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        started = time.perf_counter()
        train_error = step_through(model, train_loader, optimizer)
        val_error = step_through(model, val_loader)
        print(f"epoch {epoch}: train {train_error:.4f} val {val_error:.4f} ({time.perf_counter() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
