"""Organic carbon from soil reflectance: small calibration set, many passes."""
import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

log = logging.getLogger("soil")


@dataclass(frozen=True)
class Setup:
    samples: int = 120
    bands: int = 2100
    channels: int = 90
    batch: int = 12
    epochs: int = 16
    jobs: int = 2


def sensor_response(bands, channels):
    grid = np.linspace(0.4, 2.5, bands)
    rows = []
    for c in np.linspace(0.42, 2.48, channels):
        acc = np.zeros(bands)
        for step in np.linspace(-3, 3, 61):
            acc += np.exp(-0.5 * ((grid - c - step * 0.002) / 0.01) ** 2)
        rows.append(acc / acc.sum())
    return np.stack(rows)


def on_worker_start(worker_id):
    get_worker_info().dataset.open(torch.initial_seed() % 2**32)


class SoilSpectra(Dataset):
    def __init__(self, cfg, seed):
        rng = np.random.default_rng(seed)
        self.cfg = cfg
        self.carbon = rng.uniform(0, 6, cfg.samples)
        shape = np.sin(np.linspace(0, 9, cfg.bands))
        self.spectra = 0.4 + self.carbon[:, None] * 0.03 * shape + rng.normal(scale=0.02, size=(cfg.samples, cfg.bands))
        self.response = self.rng = None

    def open(self, seed):
        self.response = sensor_response(self.cfg.bands, self.cfg.channels)
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.cfg.samples

    def __getitem__(self, i):
        s = self.spectra[i] * self.rng.uniform(0.95, 1.05) + self.rng.normal(scale=0.01, size=self.cfg.bands)
        top = s.copy()
        for width in (41, 81, 161, 321, 401):
            k = np.hanning(width)
            top = np.maximum(top, np.convolve(top, k / k.sum(), "same"))
        x = self.response @ (s / top)
        return torch.tensor(x, dtype=torch.float32), torch.tensor(self.carbon[i], dtype=torch.float32)


def main(cfg=Setup()):
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(SoilSpectra(cfg, 0), cfg.batch, shuffle=True, num_workers=cfg.jobs,
                       worker_init_fn=on_worker_start, persistent_workers=True)
    net = nn.Sequential(nn.Unflatten(1, (1, cfg.channels)), nn.Conv1d(1, 32, 9, padding=4), nn.ReLU(),
                        nn.Conv1d(32, 32, 9, padding=4), nn.ReLU(), nn.Flatten(), nn.Linear(32 * cfg.channels, 64),
                        nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=cfg.epochs * len(train))
    for epoch in range(cfg.epochs):
        err = 0.0
        for x, y in train:
            loss = (net(x) - y).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            err += loss.item() * len(y)
        if epoch % 4 == 3:
            log.info("epoch %d mae %.3f", epoch, err / cfg.samples)


if __name__ == "__main__":
    main()
