"""Gearbox faults from vibration windows. The historian is read with an async client, one loop for each process."""
import asyncio
import logging
import os
import pathlib
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
log = logging.getLogger("turbine")
CHANNELS, POINTS = 3, 2048


@dataclass(frozen=True)
class Config:
    windows: int = 800
    epochs: int = 8
    batch_size: int = 20
    workers: int = 2
    lr: float = 2e-3


class Historian:
    """Reads channels concurrently on an event loop of its own thread."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self._forget()
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: me() and me()._forget())

    def _forget(self):
        self._loop, self._gate = None, threading.Lock()

    @property
    def loop(self):
        with self._gate:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="historian", daemon=True).start()
            return self._loop

    async def _channel(self, window, channel):
        await asyncio.sleep(0)
        return np.frombuffer((self.root / f"w{window:04d}.c{channel}").read_bytes(), "<f4")

    async def _window(self, window):
        return np.stack(await asyncio.gather(*(self._channel(window, c) for c in range(CHANNELS))))

    def window(self, number):
        return asyncio.run_coroutine_threadsafe(self._window(number), self.loop).result()


def record(root, n):
    rng = np.random.default_rng(77)
    faulty = rng.random(n) < 0.25
    t = np.arange(POINTS) / 2048
    for k in range(n):
        speed = rng.uniform(18, 24)
        base = np.sin(2 * np.pi * speed * t) + 0.4 * np.sin(2 * np.pi * speed * 11 * t + rng.uniform(0, 6))
        if faulty[k]:
            base += 0.5 * (1 + np.sin(2 * np.pi * speed * t)) * np.sin(2 * np.pi * speed * 17.3 * t)
        for c in range(CHANNELS):
            x = base * rng.uniform(0.7, 1.3) + rng.normal(0, 0.8, POINTS)
            (pathlib.Path(root) / f"w{k:04d}.c{c}").write_bytes(x.astype("<f4").tobytes())
    return faulty


class EnvelopeSpectrum:
    def __init__(self, bands=6, keep=200):
        self.bands, self.keep = bands, keep

    def __call__(self, x):
        spectrum = np.fft.fft(x, axis=-1)
        out = []
        edges = np.linspace(0, POINTS // 2, self.bands + 1).astype(int)
        for lo, hi in zip(edges, edges[1:]):
            part = np.zeros_like(spectrum)
            part[..., lo:hi] = 2 * spectrum[..., lo:hi]
            envelope = np.abs(np.fft.ifft(part, axis=-1))
            out.append(np.abs(np.fft.rfft(envelope - envelope.mean(-1, keepdims=True), axis=-1))[..., :self.keep])
        return np.log1p(np.concatenate(out)).astype(np.float32)


class Windows(Dataset):
    def __init__(self, historian, numbers, faulty, scale, noise):
        self.historian, self.numbers, self.faulty = historian, numbers, faulty
        self.scale, self.noise, self.features = scale, noise, EnvelopeSpectrum()

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        number = int(self.numbers[i])
        x = self.historian.window(number) / self.scale
        if self.noise:
            x = x + np.random.normal(0, self.noise, x.shape)
        return torch.from_numpy(self.features(x)), torch.tensor(float(self.faulty[number]))


def network():
    return nn.Sequential(
        nn.Conv1d(18, 24, 7, stride=2), nn.ReLU(), nn.Conv1d(24, 24, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(96, 1), nn.Flatten(0))


def main(cfg, root):
    faulty = record(root, cfg.windows)
    historian = Historian(root)
    scale = float(np.mean([historian.window(k).std() for k in range(16)]))
    log.info("typical amplitude %.3f", scale)
    order = np.random.default_rng(0).permutation(cfg.windows)
    val_ids, train_ids = order[:cfg.windows // 5], order[cfg.windows // 5:]
    weights = np.where(faulty[train_ids], 3.0, 1.0)
    common = dict(batch_size=cfg.batch_size, num_workers=cfg.workers, persistent_workers=cfg.workers > 0)
    train = DataLoader(Windows(historian, train_ids, faulty, scale, 0.05), sampler=WeightedRandomSampler(weights, len(train_ids)), **common)
    val = DataLoader(Windows(historian, val_ids, faulty, scale, 0), **common)
    model = network()
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        began = time.time()
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            right = torch.cat([(model(x) > 0) == (y > 0.5) for x, y in val]).float().mean()
        log.info("epoch %d: accuracy %.3f in %.1f s", epoch, right, time.time() - began)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="historian-") as folder:
        main(Config(), folder)
