# cause: rng-repeated
"""Seabed target classifier on synthetic side-scan sonar pings."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("sonar")


class SpeckleNoise:
    def __init__(self, rng, looks=4.0):
        self.rng, self.looks = rng, looks

    def __call__(self, img):
        return img * self.rng.gamma(self.looks, 1.0 / self.looks, img.shape)


class TimeVaryingGain:
    def __init__(self, rng, spread=0.4):
        self.rng, self.spread = rng, spread

    def __call__(self, img):
        slope = self.rng.normal(0.0, self.spread)
        ramp = np.linspace(0.0, 1.0, img.shape[1])
        return img * np.exp(slope * ramp)[None, :]


class DropPings:
    """Blank a few across-track lines, as happens when the towfish pitches."""

    def __init__(self, rng, most=6):
        self.rng, self.most = rng, most

    def __call__(self, img):
        rows = self.rng.choice(img.shape[0], self.rng.integers(0, self.most), replace=False)
        out = img.copy()
        out[rows] = 0.0
        return out


class Augmenter:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.steps = [SpeckleNoise(self.rng), TimeVaryingGain(self.rng), DropPings(self.rng)]

    def __call__(self, img):
        for step in self.steps:
            img = step(img)
        return img


class SonarChips(Dataset):
    classes = ("rock", "wreck", "mine", "ripple")

    def __init__(self, n, size=128, augment=None, seed=3):
        gen = np.random.default_rng(seed)
        self.labels = gen.integers(0, len(self.classes), n)
        self.centres = gen.uniform(0.3, 0.7, (n, 2))
        self.size, self.augment = size, augment

    def __len__(self):
        return len(self.labels)

    def render(self, i):
        yy, xx = np.mgrid[0:self.size, 0:self.size] / self.size
        cy, cx = self.centres[i]
        r = np.hypot(yy - cy, xx - cx)
        kind = self.labels[i]
        if kind == 3:
            img = 1.0 + np.sin(40 * (xx + 0.2 * yy))
        else:
            img = np.exp(-(r / (0.05 + 0.05 * kind)) ** 2) * 3 + 0.4
        beam = np.fft.rfft(img, axis=0)                     # beam pattern blur
        beam *= np.exp(-np.arange(beam.shape[0]) / 25.0)[:, None]
        return np.fft.irfft(beam, self.size, axis=0)

    def __getitem__(self, i):
        img = np.abs(self.render(i))
        if self.augment is not None:
            img = self.augment(img)
        img = np.log1p(img).astype(np.float32)
        return torch.from_numpy(img)[None], int(self.labels[i])


def build_net():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--seed", type=int, default=1234)
    a = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(a.seed)

    train = SonarChips(1600, augment=Augmenter(a.seed))
    val = SonarChips(200, seed=4)
    kw = dict(batch_size=a.batch_size, num_workers=a.workers, persistent_workers=a.workers > 0)
    loaders = {"train": DataLoader(train, shuffle=True, **kw), "val": DataLoader(val, **kw)}
    net = build_net()
    opt = torch.optim.AdamW(net.parameters(), 2e-3)
    crit = nn.CrossEntropyLoss()
    for epoch in range(a.epochs):
        t0 = time.time()
        net.train()
        for x, y in loaders["train"]:
            opt.zero_grad()
            loss = crit(net(x), y)
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            hits = sum((net(x).argmax(1) == y).sum().item() for x, y in loaders["val"])
        log.info("epoch %d loss %.3f val acc %.3f (%.1fs)", epoch, loss.item(), hits / len(val), time.time() - t0)


if __name__ == "__main__":
    main()
