# cause: missing-main-guard
# also: slow-worker-start
"""Detects porosity in weld radiographs (synthetic). Plain script; the settings are the constants below."""
import logging
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_TRAIN, N_TEST, SIZE = 1200, 240, 56
EPOCHS, BATCH = 4, 24
LOADER = dict(batch_size=BATCH, num_workers=2, multiprocessing_context="forkserver", persistent_workers=True)

logging.basicConfig(format="%(levelname).1s %(message)s", level=logging.INFO)
log = logging.getLogger("weld")


class Radiographs(Dataset):
    """Radiographs are rendered on demand from a seed, so an epoch needs no disk."""

    def __init__(self, n, seed, transform=None):
        self.seeds = np.random.default_rng(seed).integers(0, 2**31, n)
        self.transform = transform

    def __len__(self):
        return len(self.seeds)

    def render(self, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[:SIZE, :SIZE].astype(np.float32)
        bead = 120 + 60 * np.exp(-((yy - SIZE / 2 - 3 * np.sin(xx / 7)) / 9) ** 2)
        pores = int(rng.integers(0, 9))
        for _ in range(pores):
            cy, cx, r = rng.uniform(15, 40), rng.uniform(5, 50), rng.uniform(1, 2.5)
            bead -= 35 * np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / r**2)
        noise = rng.normal(0, 6, (8, SIZE, SIZE)).mean(0)
        image = bead + noise
        blurred = np.fft.irfft2(np.fft.rfft2(image) * np.exp(-np.fft.fftfreq(SIZE)[:, None] ** 2 * 30), s=image.shape)
        return blurred.astype(np.float32), float(pores)

    def __getitem__(self, i):
        image, pores = self.render(int(self.seeds[i]))
        x = torch.from_numpy(image)[None]
        if self.transform is not None:
            x = self.transform(x)
        return x, torch.tensor(pores)


class Normalise:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, x):
        return (x - self.mean) / self.std


def dataset_statistics(dataset, batches=10):
    """Mean and standard deviation of the grey values, from the first batches."""
    total, squares, count = 0.0, 0.0, 0
    for k, (x, _) in enumerate(DataLoader(dataset, **LOADER)):
        total += x.sum().item()
        squares += x.pow(2).sum().item()
        count += x.numel()
        if k + 1 == batches:
            break
    mean = total / count
    return mean, (squares / count - mean**2) ** 0.5


MEAN, STD = dataset_statistics(Radiographs(N_TRAIN, seed=1))
normalise = Normalise(MEAN, STD)


def make_model():
    layers, width = [], 1
    for out in (8, 16, 24):
        layers += [nn.Conv2d(width, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 1), nn.Softplus(), nn.Flatten(0))


def run_epoch(model, loader, optimiser=None):
    model.train(optimiser is not None)
    total = 0.0
    with torch.set_grad_enabled(optimiser is not None):
        for x, pores in loader:
            loss = nn.functional.poisson_nll_loss(model(x) + 1e-4, pores, log_input=False)
            if optimiser is not None:
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            total += loss.item()
    return total / len(loader)


def main():
    log.info("grey values: mean %.1f, std %.1f, pid %d", MEAN, STD, os.getpid())
    torch.manual_seed(0)
    train = DataLoader(Radiographs(N_TRAIN, 1, normalise), shuffle=True, **LOADER)
    test = DataLoader(Radiographs(N_TEST, 2, normalise), **LOADER)
    model = make_model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(1, EPOCHS + 1):
        began = time.perf_counter()
        fit = run_epoch(model, train, optimiser)
        log.info("epoch %d: train %.3f, test %.3f (%.1f s)", epoch, fit, run_epoch(model, test), time.perf_counter() - began)


if __name__ == "__main__":
    main()
