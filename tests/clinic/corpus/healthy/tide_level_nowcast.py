"""Nowcasting of tide levels with a GRU; gauge files are compressed, opened by the worker that reads them."""
import argparse
import gzip
import multiprocessing
import os
import shutil
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

STEPS, CHANNELS = 96, 4


def write_station(path, station, hours=2200):
    rng = np.random.default_rng(station)
    t = np.arange(hours)
    level = np.sin(2 * np.pi * t / 12.42 + station) + 0.4 * np.sin(2 * np.pi * t / 12.0) + 0.1 * rng.normal(size=hours).cumsum() / 30
    wind = np.convolve(rng.normal(size=hours), np.ones(24) / 24, mode="same")
    table = np.stack([level, wind, np.sin(t / 24), np.cos(t / 24)], 1).astype("<f4")
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(table.tobytes())


class Progress:
    """Counts windows served, for the progress line; shared with the workers."""

    def __init__(self):
        self._lock = multiprocessing.Lock()
        self._count = multiprocessing.Value("l", 0, lock=False)

    def add(self, n):
        with self._lock:
            self._count.value += n

    @property
    def count(self):
        return self._count.value


class TideWindows(Dataset):
    def __init__(self, folder, stations, progress):
        self.paths = [os.path.join(folder, f"{s:02d}.f32.gz") for s in range(stations)]
        self.per_station = 100
        self.progress = progress
        self._open = {}

    def table(self, station):
        key = os.getpid(), station
        if key not in self._open:
            with gzip.open(self.paths[station]) as stream:
                self._open[key] = np.frombuffer(stream.read(), dtype="<f4").reshape(-1, CHANNELS)
        return self._open[key]

    def __len__(self):
        return len(self.paths) * self.per_station

    def __getitem__(self, index):
        station, k = divmod(index, self.per_station)
        table = self.table(station)
        start = 20 * k
        window = table[start : start + STEPS + 6].copy()
        spread = np.array([np.median(np.abs(window[j : j + 24, 0] - np.median(window[j : j + 24, 0]))) for j in range(0, 72, 4)])
        window[:, 0] -= window[:STEPS, 0].mean()
        if index % 16 == 0:
            self.progress.add(16)
        return torch.from_numpy(window[:STEPS]), torch.from_numpy(spread.astype(np.float32)), torch.from_numpy(window[STEPS:, 0].copy())


class Nowcaster(nn.Module):
    def __init__(self, width=72):
        super().__init__()
        self.rnn = nn.GRU(CHANNELS, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width + 18, 6)

    def forward(self, x, spread):
        return self.head(torch.cat([self.rnn(x)[0][:, -1], spread], 1))


def announce(progress, stop, every=4.0):
    while not stop.wait(every):
        print(f"  ... {progress.count} windows served", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stations", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="tide-")
    for station in range(args.stations):
        write_station(os.path.join(folder, f"{station:02d}.f32.gz"), station)
    progress, stop = Progress(), threading.Event()
    data = TideWindows(folder, args.stations, progress)
    order = np.random.default_rng(1).permutation(len(data))
    cut = len(data) * 7 // 8
    options = dict(batch_size=32, num_workers=args.workers, persistent_workers=args.workers > 0)
    train = DataLoader(Subset(data, order[:cut]), shuffle=True, **options)
    valid = DataLoader(Subset(data, order[cut:]), **options)
    model = Nowcaster()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    reporter = threading.Thread(target=announce, args=(progress, stop), daemon=True)
    try:
        for epoch in range(args.epochs):
            begin = time.time()
            for x, spread, y in train:
                if not reporter.is_alive() and not stop.is_set():
                    reporter.start()
                loss = nn.functional.l1_loss(model(x, spread), y)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
            with torch.no_grad():
                error = np.mean([(model(x, s) - y).abs().mean().item() for x, s, y in valid])
            print(f"epoch {epoch} train {loss.item():.4f} valid {error:.4f} {time.time() - begin:.1f} s", flush=True)
    finally:
        stop.set()
        if reporter.is_alive():
            reporter.join()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
