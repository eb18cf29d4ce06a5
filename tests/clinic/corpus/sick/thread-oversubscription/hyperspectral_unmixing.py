# cause: thread-oversubscription
"""Hyperspectral unmixing: abundance regression from patches whose spectra are whitened patch by patch."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, MEMBERS = 72, 5


class Whiten:
    """ZCA-like whitening of a patch by a few Newton-Schulz iterations."""

    def __init__(self, rounds=10, parallel=True):
        self.rounds, self.parallel = rounds, parallel
        self._ready = False

    def _setup(self):
        if self.parallel:
            torch.set_num_threads(8)
        self._ready = True

    def __call__(self, spectra):
        if not self._ready:
            self._setup()
        x = spectra - spectra.mean(0)
        cov = x.T @ x / len(x) + 1e-2 * torch.eye(x.shape[1])
        norm = cov.norm()
        y, z, eye = cov / norm, torch.eye(x.shape[1]), torch.eye(x.shape[1])
        for _ in range(self.rounds):
            t = 0.5 * (3.0 * eye - z @ y)
            y, z = y @ t, t @ z
        return (x @ z) / norm.sqrt()


class Scene(Dataset):
    def __init__(self, patches, seed, transform):
        g = torch.Generator().manual_seed(1)
        wave = torch.linspace(0, 1, BANDS)
        centre = torch.rand(MEMBERS, 3, 1, generator=g)
        self.members = torch.exp(-((wave - centre) / 0.12) ** 2).sum(1)
        rng = np.random.default_rng(seed)
        self.mix = torch.from_numpy(rng.dirichlet(np.ones(MEMBERS), patches).astype(np.float32))
        self.seeds = rng.integers(0, 2 ** 31, patches)
        self.transform = transform

    def __len__(self):
        return len(self.mix)

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seeds[i])
        local = torch.from_numpy(rng.dirichlet(np.ones(MEMBERS) * 2, 256).astype(np.float32))
        abundance = 0.6 * self.mix[i] + 0.4 * local
        spectra = abundance @ self.members + 0.01 * torch.from_numpy(rng.normal(size=(256, BANDS)).astype(np.float32))
        flat = self.transform(spectra)
        return torch.cat([flat[:16].flatten(), spectra.mean(0)]), abundance.mean(0)


class Unmixer(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(17 * BANDS, width), nn.GELU(), nn.Linear(width, MEMBERS))

    def forward(self, x):
        return self.net(x).softmax(1)


def rmse(model, loader):
    with torch.inference_mode():
        errors = [((model(x) - y) ** 2).mean(1) for x, y in loader]
    return torch.cat(errors).mean().sqrt().item()


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--patches", type=int, default=1000)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=20)
    return p.parse_args()


def main():
    args = cli()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    options = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=True)
    train = DataLoader(Scene(args.patches, 10, Whiten()), shuffle=True, **options)
    valid = DataLoader(Scene(args.patches // 6, 11, Whiten()), **options)
    model = Unmixer()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, args.epochs * len(train))
    for epoch in range(args.epochs):
        clock, count = time.monotonic(), 0
        for x, y in train:
            loss = nn.functional.mse_loss(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            count += len(x)
        rate = count / (time.monotonic() - clock)
        print(f"epoch {epoch}: {rate:.1f} patches/s, rmse {rmse(model, valid):.4f}", flush=True)


if __name__ == "__main__":
    main()
