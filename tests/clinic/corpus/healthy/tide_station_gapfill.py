"""Fills gaps in tide-gauge records with a 1-d U-net; checkpoints are written by a background thread."""
import argparse
import pathlib
import queue
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PERIODS = np.array([12.42, 12.0, 12.66, 23.93, 25.82, 11.97, 6.21])
LENGTH = 512


class HarmonicTable:
    """Least-squares tidal constituents of each station. Filled by a thread, guarded by a lock."""

    def __init__(self, records):
        self.records = records
        self.fits = {}
        self.lock = threading.Lock()
        self.filler = threading.Thread(target=self._fill, name="harmonics", daemon=True)
        self.filler.start()

    def _fill(self):
        with self.lock:
            for station, record in enumerate(self.records):
                self.fits[station] = self._fit(record)

    @staticmethod
    def basis(t):
        phase = 2 * np.pi * t[:, None] / PERIODS
        return np.concatenate([np.ones((len(t), 1)), np.cos(phase), np.sin(phase)], 1)

    def _fit(self, record):
        return np.linalg.lstsq(self.basis(np.arange(len(record))), record, rcond=None)[0]

    def wait(self):
        self.filler.join()
        return self

    def predict(self, station, start):
        with self.lock:
            coefficients = self.fits[station]
        return self.basis(np.arange(start, start + LENGTH)) @ coefficients


class CheckpointWriter:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.inbox = queue.Queue()
        self.busy = threading.Lock()
        self.thread = threading.Thread(target=self._serve, name="checkpoints", daemon=True)
        self.thread.start()

    def _serve(self):
        for name, state in iter(self.inbox.get, None):
            with self.busy:
                torch.save(state, self.folder / name)

    def put(self, name, model):
        self.inbox.put((name, {k: v.clone() for k, v in model.state_dict().items()}))

    def close(self):
        self.inbox.put(None)
        self.thread.join()


def gauges(stations, hours, seed=6):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    out = np.zeros((stations, hours))
    for s in range(stations):
        amp, phase = rng.uniform(0.1, 1.0, len(PERIODS)), rng.uniform(0, 2 * np.pi, len(PERIODS))
        out[s] = (amp * np.cos(2 * np.pi * t[:, None] / PERIODS + phase)).sum(1)
        surge = np.convolve(rng.normal(0, 1, hours), np.exp(-np.arange(48) / 15), mode="same")
        out[s] += 0.1 * surge
    return out


class GapWindows(Dataset):
    def __init__(self, records, harmonics, n, seed=1):
        rng = np.random.default_rng(seed)
        self.records, self.harmonics = records, harmonics
        self.station = rng.integers(0, len(records), n)
        self.start = rng.integers(0, records.shape[1] - LENGTH, n)

    def __len__(self):
        return len(self.station)

    @staticmethod
    def despike(x, half=12):
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(x, half, mode="reflect"), 2 * half + 1)
        middle = np.median(frames, axis=1)
        spread = np.percentile(np.abs(frames - middle[:, None]), 90, axis=1) + 1e-3
        return np.where(np.abs(x - middle) > 4 * spread, middle, x)

    def __getitem__(self, i):
        station, start = int(self.station[i]), int(self.start[i])
        raw = self.records[station, start:start + LENGTH]
        residual = raw - self.harmonics.predict(station, start)
        for half in (12, 24, 48):
            residual = self.despike(residual, half)
        keep = np.ones(LENGTH)
        for _ in range(np.random.randint(1, 4)):
            a = np.random.randint(0, LENGTH - 80)
            keep[a:a + np.random.randint(20, 80)] = 0
        x = np.stack([residual * keep, keep]).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy(residual.astype(np.float32))


class GapNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.down = nn.Conv1d(2, w, 9, stride=4, padding=4)
        self.mid = nn.Conv1d(w, w, 9, padding=16, dilation=4)
        self.up = nn.ConvTranspose1d(w, 1, 4, stride=4)

    def forward(self, x):
        h = torch.relu(self.down(x))
        return self.up(torch.relu(h + self.mid(h))).squeeze(1)


def masked_error(out, target, x):
    gap = 1 - x[:, 1]
    return ((out - target) ** 2 * gap).sum() / gap.sum().clamp(min=1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--windows", type=int, default=700)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    records = gauges(24, 6000)
    harmonics = HarmonicTable(records)
    model, opt = (net := GapNet()), torch.optim.Adam(net.parameters(), lr=4e-3)
    train, val = random_split(GapWindows(records, harmonics.wait(), a.windows), [0.85, 0.15])
    extra = dict(num_workers=a.workers, persistent_workers=a.workers > 0)
    train_loader = DataLoader(train, 20, shuffle=True, **extra)
    val_loader = DataLoader(val, 45, **extra)
    with tempfile.TemporaryDirectory() as folder:
        writer = CheckpointWriter(folder)
        for epoch in range(a.epochs):
            t0 = time.time()
            for x, y in train_loader:
                loss = masked_error(model(x), y, x)
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                score = np.mean([masked_error(model(x), y, x).item() for x, y in val_loader])
            writer.put(f"epoch{epoch}.pt", model)
            print(f"epoch {epoch} gap mse {score:.4f} {time.time() - t0:.2f} s", flush=True)
        writer.close()


if __name__ == "__main__":
    main()
