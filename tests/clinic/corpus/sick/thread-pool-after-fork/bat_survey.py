# cause: thread-pool-after-fork
"""Bat species from full-spectrum recordings. The channels of a recording are stored as separate files and fetched side by side."""
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger(__name__)


class ChannelStore:
    """Reads the channel files of a night's recording; each read has the latency of the archive."""

    def __init__(self, root, channels, latency=0.004):
        self.root, self.channels, self.latency = Path(root), channels, latency

    @cached_property
    def _readers(self):
        return ThreadPoolExecutor(max_workers=self.channels)

    def _one(self, key, channel):
        time.sleep(self.latency)
        return np.fromfile(self.root / key / f"ch{channel}.raw", np.int16)

    def fetch(self, key):
        jobs = [self._readers.submit(self._one, key, c) for c in range(self.channels)]
        return np.stack([j.result() for j in jobs])

    def keys(self):
        return sorted(p.name for p in self.root.iterdir())


def spectrogram(wave, n=256, hop=128):
    frames = torch.from_numpy(wave.astype(np.float32) / 32768).unfold(1, n, hop) * torch.hann_window(n)
    return torch.fft.rfft(frames).abs().log1p()


class Calls(Dataset):
    def __init__(self, store, norm=None):
        self.store, self.norm = store, norm
        self.items = store.keys()

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        key = self.items[i]
        spec = spectrogram(self.store.fetch(key))
        if self.norm:
            spec = (spec - self.norm[0]) / self.norm[1]
        return spec, int(key.split("-")[1])


def statistics(data, n=16):
    stack = torch.stack([data[i][0] for i in range(n)])
    return stack.mean().item(), stack.std().item()


def record(root, n, channels):
    rng = np.random.default_rng(21)
    t = np.arange(8192) / 8192
    for i in range(n):
        species = i % 3
        folder = Path(root) / f"{i:04d}-{species}"
        folder.mkdir()
        sweep = np.sin(2 * np.pi * (600 + 700 * species) * t * (1 - 0.2 * t))
        for c in range(channels):
            wave = 9000 * sweep * rng.uniform(0.3, 1) + rng.normal(0, 1500, len(t))
            wave.astype(np.int16).tofile(folder / f"ch{c}.raw")


class SpeciesNet(nn.Module):
    def __init__(self, channels, species=3):
        super().__init__()
        self.conv = nn.Conv2d(channels, 12, (5, 9), stride=(2, 4))
        self.out = nn.Linear(12 * 31, species)

    def forward(self, x):
        return self.out(self.conv(x).relu().amax(2).flatten(1))


def main(n=120, channels=4, epochs=2, batch=10):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        record(root, n, channels)
        data = Calls(ChannelStore(root, channels))
        data.norm = statistics(data)
        logger.info("normalising with mean %.3f std %.3f", *data.norm)
        loader = DataLoader(data, batch, shuffle=True, num_workers=2, persistent_workers=True)
        model = SpeciesNet(channels)
        opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        for epoch in range(epochs):
            hits = 0
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += int((out.argmax(1) == y).sum())
            logger.info("epoch %d accuracy %.3f", epoch, hits / n)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    main()
