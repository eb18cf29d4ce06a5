# cause: lock-serialises-workers
"""Tram delay regression; trips come from a remote trip archive, a shared tally shows how far reading has got."""
import argparse
import ctypes
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tally:
    """Numbers that every process may add to."""

    def __init__(self):
        self.trips = mp.Value(ctypes.c_long, 0)
        self.stops = mp.Value(ctypes.c_long, 0)

    def __str__(self):
        return f"{self.trips.value} trips, {self.stops.value} stops"


class TripArchive:
    def __init__(self, latency, stops):
        self.latency, self.stops = latency, stops

    def load(self, number):
        time.sleep(self.latency)  # one round trip
        rng = np.random.default_rng(number)
        gaps = rng.gamma(4.0, 20.0, self.stops)
        hour = rng.integers(5, 24)
        return hour, gaps, gaps[-8:].mean() / 60 + 0.05 * (hour in (7, 8, 16, 17))


class Trips(Dataset):
    def __init__(self, archive, numbers, tally):
        self.archive, self.numbers, self.tally = archive, numbers, tally

    def __len__(self):
        return len(self.numbers)

    def features(self, hour, gaps):
        clock = np.array([np.sin(hour / 24 * 2 * np.pi), np.cos(hour / 24 * 2 * np.pi)])
        return np.concatenate([clock, np.log1p(gaps) / 5, np.cumsum(gaps) / 5000])

    def __getitem__(self, i):
        with self.tally.trips.get_lock():
            hour, gaps, delay = self.archive.load(int(self.numbers[i]))
            self.tally.trips.value += 1
            self.tally.stops.value += len(gaps)
        x = self.features(hour, gaps)
        return torch.from_numpy(x.astype(np.float32)), torch.tensor(delay, dtype=torch.float32)


def epoch(net, opt, loader):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.smooth_l1_loss(net(x)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trips", type=int, default=320)
    p.add_argument("--latency", type=float, default=0.008)
    p.add_argument("--stops", type=int, default=30)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tally = Tally()
    loader = DataLoader(Trips(TripArchive(a.latency, a.stops), np.arange(a.trips), tally), a.batch, shuffle=True,
                        num_workers=a.workers, persistent_workers=True)
    net = nn.Sequential(nn.Linear(2 + 2 * a.stops, 32), nn.SiLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for n in range(a.epochs):
        began = time.time()
        loss = epoch(net, opt, loader)
        print(f"epoch {n} loss {loss:.4f} in {time.time() - began:.1f}s ({tally})", flush=True)


if __name__ == "__main__":
    main()
