# cause: sample-mutated-in-place
"""Sleep staging from two-channel EEG epochs of thirty seconds."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

RATE, SECONDS, STAGES = 50, 30, 5
BAND = {0: 10.0, 1: 6.5, 2: 12.5, 3: 1.5, 4: 5.0}


def record_night(path, epochs, seed):
    rng = np.random.default_rng(seed)
    stages = rng.integers(0, STAGES, epochs)
    t = np.arange(RATE * SECONDS) / RATE
    waves = np.empty((epochs, 2, len(t)), dtype=np.float32)
    for k, stage in enumerate(stages):
        rhythm = np.sin(2 * np.pi * BAND[int(stage)] * t + rng.uniform(0, 6))
        waves[k] = rhythm * rng.uniform(0.5, 1.5) + rng.normal(0, 1.0, (2, len(t)))
    np.savez(path, waves=waves * 20, stages=stages)


class Night(Dataset):
    """One recording; read at first use and kept."""

    def __init__(self, path, transform=None):
        self.path, self.transform = Path(path), transform
        with np.load(self.path) as archive:
            self.size = len(archive["stages"])
        self._data = None

    @property
    def data(self):
        if self._data is None:
            with np.load(self.path) as archive:
                self._data = archive["waves"], archive["stages"]
        return self._data

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        waves, stages = self.data
        wave = waves[index]
        if self.transform:
            wave = self.transform(wave)
        return features(wave), int(stages[index])


class ElectrodeGain:
    def __init__(self, spread=0.25):
        self.spread = spread

    def __call__(self, wave):
        wave *= np.exp(np.random.normal(0, self.spread, (2, 1))).astype(np.float32)
        return wave


class MainsHum:
    def __init__(self, level=3.0):
        self.level = level

    def __call__(self, wave):
        phase = np.random.uniform(0, 2 * np.pi)
        wave += (self.level * np.random.rand() * np.sin(2 * np.pi * 16.7 * np.arange(wave.shape[-1]) / RATE + phase)).astype(np.float32)
        return wave


class Augment:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, wave):
        for step in self.steps:
            wave = step(wave)
        return wave


def features(wave):
    windows = np.lib.stride_tricks.sliding_window_view(wave, 128, axis=1)[:, ::16]
    power = np.abs(np.fft.rfft(windows * np.hanning(128), axis=2))[..., :64]
    return torch.from_numpy(np.log(power + 1).astype(np.float32))


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 16)), nn.Flatten())
        self.head = nn.Linear(32 * 16, STAGES)

    def forward(self, x):
        return self.head(self.net(x))


def loaders(folder, args):
    paths = [folder / f"night{k}.npz" for k in range(args.nights)]
    for k, path in enumerate(paths):
        record_night(path, args.epochs_per_night, seed=k)
    augment = Augment(ElectrodeGain(), MainsHum())
    train = ConcatDataset([Night(p, augment) for p in paths[:-1]])
    options = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0)
    return DataLoader(train, shuffle=True, **options), DataLoader(Night(paths[-1]), **options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nights", type=int, default=5)
    parser.add_argument("--epochs-per-night", type=int, default=240)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        train, check = loaders(Path(name), args)
        model = Stager()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            start, total = time.perf_counter(), 0.0
            for x, stage in train:
                loss = nn.functional.cross_entropy(model(x), stage)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            with torch.no_grad():
                hits = sum((model(x).argmax(1) == s).sum().item() for x, s in check)
            print(f"epoch {epoch}: loss {total / len(train):.3f}, held-out night {hits / len(check.dataset):.3f}, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
