"""Ferry passenger forecast; crossings come from a booking archive, a shared tally counts what has been read."""
import argparse
import ctypes
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tally:
    def __init__(self):
        self.crossings = mp.Value(ctypes.c_long, 0)

    def add(self, n):
        with self.crossings.get_lock():
            self.crossings.value += n


class Bookings:
    def __init__(self, latency, hours):
        self.latency, self.hours = latency, hours

    def load(self, number):
        time.sleep(self.latency)  # one round trip
        rng = np.random.default_rng(number)
        counts = rng.poisson(40 + 20 * np.sin(np.arange(self.hours) / 24 * 2 * np.pi + number % 6))
        return counts, counts[-24:].mean() / 100


class Crossings(Dataset):
    def __init__(self, bookings, numbers, tally):
        self.bookings, self.numbers, self.tally = bookings, numbers, tally

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        counts, target = self.bookings.load(int(self.numbers[i]))
        self.tally.add(1)
        daily = counts.reshape(-1, 24)
        x = np.concatenate([daily.mean(0), daily.std(0), np.diff(daily.mean(0), prepend=0)]) / 50
        return torch.from_numpy(x.astype(np.float32)), torch.tensor(target, dtype=torch.float32)


class Accelerator:
    """The step itself; the heavy half is remote and takes a fixed time."""

    def __init__(self, net, lr, remote):
        self.net, self.opt, self.remote = net, torch.optim.Adam(net.parameters(), lr), remote

    def step(self, x, y):
        loss = nn.functional.smooth_l1_loss(self.net(x)[:, 0], y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        time.sleep(self.remote)
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--crossings", type=int, default=480)
    p.add_argument("--latency", type=float, default=0.005)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tally = Tally()
    loader = DataLoader(Crossings(Bookings(a.latency, 240), np.arange(a.crossings), tally), a.batch, shuffle=True,
                        num_workers=a.workers, persistent_workers=True)
    run = Accelerator(nn.Sequential(nn.Linear(72, 32), nn.SiLU(), nn.Linear(32, 1)), 2e-3, 0.06)
    for n in range(a.epochs):
        began, total = time.time(), 0.0
        for x, y in loader:
            total += run.step(x, y)
        print(f"epoch {n} loss {total / len(loader):.4f} {time.time() - began:.1f}s ({tally.crossings.value} read)", flush=True)


if __name__ == "__main__":
    main()
