# cause: lock-held-at-fork
"""Sea-ice concentration from passive-microwave swaths: per-pixel regression over small tiles.

Brightness temperatures are corrected with a climatology (one field per day of the year), which is
interpolated from monthly means and kept in memory by ``Climatology``.
"""
import argparse
import logging
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("seaice")
TILE = 48


class Climatology:
    """Daily mean brightness temperature, interpolated from twelve monthly fields on first need."""

    def __init__(self, rng, size=400):
        self.monthly = rng.normal(240, 12, size=(12, size, size)).astype(np.float32)
        self._daily = {}
        self._guard = threading.RLock()

    def _interpolate(self, day):
        pos = day / 366 * 12
        lo, frac = int(pos) % 12, pos % 1
        field = (1 - frac) * self.monthly[lo] + frac * self.monthly[(lo + 1) % 12]
        spectrum = np.fft.rfft2(field)
        fy = np.fft.fftfreq(field.shape[0])[:, None]
        fx = np.fft.rfftfreq(field.shape[1])[None]
        spectrum *= np.exp(-40 * (fx**2 + fy**2))
        return np.fft.irfft2(spectrum, s=field.shape).astype(np.float32)

    def warm_up(self):
        """Interpolate the whole year while the rest of the program is being set up."""
        threading.Thread(target=self._fill, name="climatology", daemon=True).start()

    def _fill(self):
        began = time.perf_counter()
        with self._guard:
            for day in range(366):
                if day not in self._daily:
                    self._daily[day] = self._interpolate(day)
        log.info("climatology ready after %.1f s", time.perf_counter() - began)

    def __getitem__(self, day):
        with self._guard:
            if day not in self._daily:
                self._daily[day] = self._interpolate(day)
            return self._daily[day]


class Anomaly:
    """Replaces absolute brightness temperature by its deviation from the climatology."""

    def __init__(self, climatology, scale=15.0):
        self.climatology = climatology
        self.scale = scale

    def __call__(self, tile, day, row, col):
        mean = self.climatology[day][row:row + TILE, col:col + TILE]
        return (tile - mean) / self.scale


class SwathTiles(Dataset):
    def __init__(self, n, transform, seed=11):
        rng = np.random.default_rng(seed)
        self.day = rng.integers(0, 366, n)
        self.corner = rng.integers(0, 400 - TILE, (n, 2))
        self.noise_seed = rng.integers(0, 2**31, n)
        self.transform = transform

    def __len__(self):
        return len(self.day)

    def __getitem__(self, i):
        rng = np.random.default_rng(self.noise_seed[i])
        coarse = rng.random((4, 6, 6))
        field = np.kron(coarse, np.ones((8, 8)))
        for _ in range(6):  # antenna pattern
            field = (field + np.roll(field, 1, -1) + np.roll(field, -1, -1) + np.roll(field, 1, -2) + np.roll(field, -1, -2)) / 5
        ice = field.mean(0)
        channels = 200 + 60 * field + rng.normal(0, 2, field.shape)
        row, col = self.corner[i]
        x = np.stack([self.transform(c, int(self.day[i]), row, col) for c in channels])
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(ice[None].astype(np.float32))


def build_loaders(args):
    climatology = Climatology(np.random.default_rng(2))
    climatology.warm_up()
    data = SwathTiles(args.tiles, Anomaly(climatology))
    n_val = len(data) // 5
    train, val = random_split(data, [len(data) - n_val, n_val], generator=torch.Generator().manual_seed(3))
    common = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=args.workers > 0)
    return DataLoader(train, shuffle=True, drop_last=True, **common), DataLoader(val, **common)


def build_model():
    return nn.Sequential(
        nn.Conv2d(4, 12, 3, padding=1), nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
        nn.Conv2d(12, 1, 1), nn.Sigmoid())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tiles", type=int, default=1600)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)

    train, val = build_loaders(args)
    model = build_model()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        model.train()
        total, began = 0.0, time.perf_counter()
        for x, y in train:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            rmse = torch.cat([((model(x) - y) ** 2).mean((1, 2, 3)) for x, y in val]).mean().sqrt().item()
        log.info("epoch %d  loss %.4f  val rmse %.3f  %.1f s", epoch, total / len(train), rmse, time.perf_counter() - began)


if __name__ == "__main__":
    main()
