"""Runoff of river basins from tables of daily weather: cheap arrays, read straight in the main process."""
import argparse
import subprocess
import sys
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class BasinDays(Dataset):
    """A window of weather and the runoff of its last day; whole batches are taken at once."""

    def __init__(self, days=8000, window=48, seed=0):
        rng = np.random.default_rng(seed)
        rain = rng.gamma(0.4, 6.0, days).astype(np.float32)
        warmth = (10 + 9 * np.sin(np.arange(days) * 2 * np.pi / 365) + rng.normal(0, 2, days)).astype(np.float32)
        store = np.zeros(days, dtype=np.float32)
        for day in range(1, days):
            store[day] = 0.93 * store[day - 1] + rain[day] * (1 - 0.015 * warmth[day])
        self.weather = torch.from_numpy(np.stack([rain / 10, warmth / 20], 1))
        self.runoff = torch.from_numpy(0.07 * store)
        self.window = window
        self.lock = threading.Lock()
        self.served = 0

    def __len__(self):
        return len(self.runoff) - self.window

    def __getitem__(self, day):
        return self.weather[day:day + self.window].flatten(), self.runoff[day + self.window - 1]

    def __getitems__(self, days):
        days = torch.as_tensor(days)
        with self.lock:
            self.served += len(days)
        rows = days[:, None] + torch.arange(self.window)
        return self.weather[rows].flatten(1), self.runoff[days + self.window - 1]


def whole(batch):
    return batch


class Reporter(threading.Thread):
    """Prints the latest numbers now and then."""

    def __init__(self, every=3.0):
        super().__init__(daemon=True)
        self.every, self.latest, self.end = every, "starting", threading.Event()

    def run(self):
        while not self.end.wait(self.every):
            print(f"  ... {self.latest}", flush=True)

    def stop(self):
        self.end.set()
        self.join()


def software_version():
    return subprocess.run([sys.executable, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def train(args):
    torch.manual_seed(args.seed)
    days = BasinDays()
    fit, test = random_split(days, [0.9, 0.1])
    fit_loader = DataLoader(fit, batch_size=args.batch, shuffle=True, collate_fn=whole)
    test_loader = DataLoader(test, batch_size=1024, collate_fn=whole)
    model = nn.Sequential(nn.Linear(2 * days.window, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(software_version())
    reporter = Reporter()
    reporter.start()
    try:
        for epoch in range(args.epochs):
            start = time.perf_counter()
            for weather, runoff in fit_loader:
                loss = nn.functional.mse_loss(model(weather)[:, 0], runoff)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                reporter.latest = f"epoch {epoch} loss {loss.item():.4f}"
            rate = len(fit) / (time.perf_counter() - start)
            with torch.no_grad():
                error = sum((model(x)[:, 0] - y).abs().sum().item() for x, y in test_loader) / len(test)
            print(f"epoch {epoch}: test error {error:.4f}, {rate:.0f} days/s", flush=True)
    finally:
        reporter.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
