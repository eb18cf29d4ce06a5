# cause: too-many-workers
"""Rain nowcasting: five radar frames in, the sixth one out. Frames come in compressed day files."""
import argparse
import bz2
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

FRAMES, SIDE = 6, 48
PER_DAY = 256


def write_day(path, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    day = np.zeros((PER_DAY, FRAMES, SIDE, SIDE), dtype=np.uint8)
    for k in range(PER_DAY):
        x, y = rng.uniform(8, 40, 2)
        vx, vy = rng.uniform(-2, 2, 2)
        size = rng.uniform(3, 7)
        for t in range(FRAMES):
            day[k, t] = 200 * np.exp(-((xx - x - vx * t) ** 2 + (yy - y - vy * t) ** 2) / (2 * size ** 2))
    day += rng.integers(0, 4, day.shape, dtype=np.uint8)
    path.write_bytes(bz2.compress(day.tobytes(), 3))


class RadarArchive(Dataset):
    """Sequences of all the days; the day that is being read stays decompressed."""

    def __init__(self, paths, train):
        self.paths, self.train = list(paths), train
        self._day, self._frames = -1, None

    def __len__(self):
        return len(self.paths) * PER_DAY

    def _load(self, day):
        if day != self._day:
            raw = bz2.decompress(self.paths[day].read_bytes())
            self._frames = np.frombuffer(raw, dtype=np.uint8).reshape(PER_DAY, FRAMES, SIDE, SIDE)
            self._day = day
        return self._frames

    def __getitem__(self, index):
        day, k = divmod(index, PER_DAY)
        rain = self._load(day)[k].astype(np.float32) / 64.0
        rain = np.log1p(rain)
        spectrum = np.fft.rfft2(rain)
        spectrum[:, 18:-18] *= 0.3
        rain = np.fft.irfft2(spectrum, s=(SIDE, SIDE)).astype(np.float32)
        if self.train:
            turns = np.random.randint(4)
            rain = np.rot90(rain, turns, axes=(1, 2)).copy()
        return torch.from_numpy(rain[:-1]), torch.from_numpy(rain[-1:])


class DaySampler(Sampler):
    """Days in random order, sequences in random order within their day: no seeking about in the archive."""

    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return len(self.archive)

    def __iter__(self):
        days = list(range(len(self.archive.paths)))
        random.shuffle(days)
        for day in days:
            order = list(range(day * PER_DAY, (day + 1) * PER_DAY))
            random.shuffle(order)
            yield from order


class Nowcaster(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(FRAMES - 1, width, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(width, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        return x[:, -1:] + self.net(x)


def run(args):
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="radar_") as name:
        paths = [Path(name) / f"day_{d:02d}.bz2" for d in range(args.days)]
        for d, path in enumerate(paths):
            write_day(path, d)
        archive = RadarArchive(paths[:-1], train=True)
        workers = (os.cpu_count() or 2) * args.workers_per_core
        train = DataLoader(archive, batch_size=args.batch, sampler=DaySampler(archive), num_workers=workers, persistent_workers=True)
        check = DataLoader(RadarArchive(paths[-1:], train=False), batch_size=64)
        model = Nowcaster()
        optimiser = torch.optim.Adam(model.parameters(), lr=args.lr)
        for epoch in range(args.epochs):
            start = time.perf_counter()
            for past, future in train:
                loss = nn.functional.smooth_l1_loss(model(past), future)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            seconds = time.perf_counter() - start
            with torch.no_grad():
                error = sum(nn.functional.l1_loss(model(p), f).item() for p, f in check) / len(check)
            print(f"epoch {epoch}: {len(archive) / seconds:.0f} sequences/s, mean absolute error {error:.4f}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers-per-core", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run(parse())
