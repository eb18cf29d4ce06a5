# cause: per-worker-cache
"""Detecting echolocation clicks in long hydrophone recordings stored in day files."""
import os
import struct
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

MAGIC = b"HYD1"


@dataclass
class Config:
    days: int = 10
    rate: int = 48_000
    minutes: float = 2.0
    clips_per_day: int = 64
    clip: int = 4096
    batch: int = 8
    workers: int = 2
    epochs: int = 3
    lr: float = 1e-3
    stations: list = field(default_factory=lambda: ["north", "south"])


def record_day(path, cfg, seed):
    rng = np.random.default_rng(seed)
    n = int(cfg.rate * cfg.minutes * 60 / 4)
    wave = (rng.standard_normal(n) * 300).astype(np.int16)
    clicks = np.sort(rng.integers(0, n - 64, 400)).astype(np.int64)
    for c in clicks:
        wave[c:c + 64] += (2500 * np.hanning(64) * np.sin(np.arange(64))).astype(np.int16)
    with open(path, "wb") as f:
        f.write(MAGIC + struct.pack("<qq", n, len(clicks)))
        f.write(clicks.tobytes())
        f.write(wave.tobytes())


class DayReader:
    """Returns a recording whitened and ready for slicing."""

    def __init__(self):
        self._open = OrderedDict()

    def get(self, path):
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        with open(path, "rb") as f:
            if f.read(4) != MAGIC:
                raise ValueError(f"{path} is no hydrophone file")
            n, k = struct.unpack("<qq", f.read(16))
            clicks = np.frombuffer(f.read(8 * k), dtype=np.int64)
            wave = np.frombuffer(f.read(2 * n), dtype=np.int16)
        signal = wave.astype(np.float64) / 32768
        signal -= signal.mean()
        envelope = np.abs(signal)
        self._open[path] = (signal, envelope, clicks)
        return self._open[path]


class StationDay(Dataset):
    reader = DayReader()

    def __init__(self, path, cfg):
        self.path, self.cfg = path, cfg

    def __len__(self):
        return self.cfg.clips_per_day

    def __getitem__(self, i):
        signal, envelope, clicks = self.reader.get(self.path)
        start = torch.randint(0, len(signal) - self.cfg.clip, ()).item()
        end = start + self.cfg.clip
        inside = np.searchsorted(clicks, end - 64) - np.searchsorted(clicks, start)
        spectrum = np.log1p(np.abs(np.fft.rfft(signal[start:end].reshape(32, -1), axis=1)))
        peaks = envelope[start:end].reshape(32, -1).max(1, keepdims=True)
        return torch.from_numpy(np.hstack([spectrum, peaks]).astype(np.float32)), torch.tensor(float(inside > 0))


class ClickNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(66, 32, 3, padding=1)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x.transpose(1, 2))).amax(2)).squeeze(1)


class Trainer:
    def __init__(self, cfg, dataset):
        self.cfg = cfg
        self.net = ClickNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.loader = DataLoader(dataset, cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True)

    def step(self, x, y):
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        time.sleep(0.012)  # stands for the device
        return loss.item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            losses = [self.step(x, y) for x, y in self.loader]
            print(f"epoch {epoch} loss {np.mean(losses):.4f}", flush=True)


def main():
    cfg = Config()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for s, station in enumerate(cfg.stations):
            for day in range(cfg.days):
                path = os.path.join(folder, f"{station}_{day:02d}.hyd")
                record_day(path, cfg, 100 * s + day)
                parts.append(StationDay(path, cfg))
        Trainer(cfg, ConcatDataset(parts)).fit()


if __name__ == "__main__":
    main()
