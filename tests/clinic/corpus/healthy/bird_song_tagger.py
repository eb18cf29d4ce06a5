"""Bird song tagging with random crops, gain and noise."""
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

RATE = 8000


@dataclass
class Config:
    species: int = 5
    recordings: int = 1200
    batch: int = 20
    epochs: int = 4
    seed: int = 13


class RandomGain:
    def __init__(self, seed):
        self.rnd = random.Random(seed)

    def reseed(self, seed):
        self.rnd.seed(seed)

    def __call__(self, x):
        return x * self.rnd.uniform(0.4, 1.6)


class RainNoise:
    def __init__(self, seed):
        self.state = np.random.RandomState(seed)

    def reseed(self, seed):
        self.state = np.random.RandomState(seed % 2 ** 32)

    def __call__(self, x):
        return x + self.state.normal(0, self.state.uniform(0, 0.3), x.shape)


class Chain:
    def __init__(self, *parts):
        self.parts = parts

    def reseed(self, seed):
        for k, part in enumerate(self.parts):
            part.reseed(seed + 7919 * k)

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x


class SongDataset(Dataset):
    def __init__(self, cfg):
        rs = np.random.default_rng(cfg.seed)
        self.label = rs.integers(0, cfg.species, cfg.recordings)
        t = np.arange(RATE + RATE // 2) / RATE
        self.audio = np.empty((cfg.recordings, len(t)), np.float32)
        for i, c in enumerate(self.label):
            sweep = 500 + 350 * c + 200 * np.sin(2 * np.pi * (2 + c) * t)
            self.audio[i] = np.sin(2 * np.pi * np.cumsum(sweep) / RATE)
        self.rng = np.random.default_rng(cfg.seed)
        self.augment = Chain(RandomGain(cfg.seed), RainNoise(cfg.seed))

    def reseed(self, seed):
        self.rng = np.random.default_rng(seed)
        self.augment.reseed(seed)

    def __len__(self):
        return len(self.label)

    def spectrogram(self, x):
        frames = np.lib.stride_tricks.sliding_window_view(x, 256)[::80] * np.hanning(256)
        return np.log1p(np.abs(np.fft.rfft(frames, axis=1))[:, :96]).T.astype(np.float32)

    def __getitem__(self, i):
        start = int(self.rng.integers(0, RATE // 2))
        clip = self.augment(self.audio[i, start:start + RATE])
        return torch.from_numpy(self.spectrogram(clip))[None], int(self.label[i])


def seed_worker(worker_id):
    info = get_worker_info()
    info.dataset.reseed(info.seed)


class Tagger(nn.Module):
    def __init__(self, species):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(24, 40, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                  nn.Linear(160, species))

    def forward(self, x):
        return self.body(x)


def fit(cfg):
    loader = DataLoader(SongDataset(cfg), batch_size=cfg.batch, shuffle=True, num_workers=2,
                        worker_init_fn=seed_worker)
    net = Tagger(cfg.species)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(cfg.epochs):
        t0, waited, hits = time.time(), 0.0, 0
        mark = time.time()
        for x, y in loader:
            waited += time.time() - mark
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hits += (out.argmax(1) == y).sum().item()
            mark = time.time()
        print(f"epoch {epoch} acc {hits / cfg.recordings:.3f} {time.time() - t0:.1f}s data {waited:.2f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(Config.seed)
    torch.set_num_threads(1)
    fit(Config())
