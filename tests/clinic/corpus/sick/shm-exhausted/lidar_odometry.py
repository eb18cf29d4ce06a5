# cause: shm-exhausted
# limits: shm=64M
import logging
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("odometry")


@dataclass
class Config:
    sequences: int = 4
    frames: int = 22
    beams: int = 64
    columns: int = 1800
    batch: int = 6
    workers: int = 3
    epochs: int = 2
    lr: float = 3e-4


class Pair(NamedTuple):
    source: torch.Tensor
    target: torch.Tensor
    motion: torch.Tensor


class SweepPairs(Dataset):
    """Consecutive sweeps of a spinning lidar; returns keep their native (ragged) size."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.items = [(s, f) for s in range(cfg.sequences) for f in range(cfg.frames - 1)]

    def _sweep(self, seq, frame):
        c = self.cfg
        rng = np.random.default_rng(seq * 10_000 + frame)
        az = np.linspace(-np.pi, np.pi, c.columns, endpoint=False)
        el = np.linspace(-0.43, 0.05, c.beams)
        az, el = np.meshgrid(az, el)
        rng_m = 12 + 6 * np.sin(3 * az + seq + 0.05 * frame) + rng.normal(0, 0.02, az.shape)
        hit = rng.random(az.shape) > 0.12
        pts = np.stack([
            rng_m * np.cos(el) * np.cos(az),
            rng_m * np.cos(el) * np.sin(az),
            rng_m * np.sin(el),
            rng.random(az.shape),
        ], -1)
        return torch.from_numpy(pts[hit].astype(np.float32))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        seq, frame = self.items[i]
        yaw = 0.01 * np.sin(0.2 * frame + seq)
        motion = torch.tensor([0.8, 0.02 * seq, yaw], dtype=torch.float32)
        return Pair(self._sweep(seq, frame), self._sweep(seq, frame + 1), motion)


def ragged(pairs):
    sources = [p.source for p in pairs]
    targets = [p.target for p in pairs]
    return sources, targets, torch.stack([p.motion for p in pairs])


class PointEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, dim))

    def forward(self, clouds):
        return torch.stack([self.mlp(c[::8]).amax(0) for c in clouds])


class OdometryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = PointEncoder()
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, a, b):
        return self.head(torch.cat([self.enc(a), self.enc(b)], -1))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = OdometryNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.loader = DataLoader(SweepPairs(cfg), batch_size=cfg.batch, shuffle=True,
                                 num_workers=cfg.workers, collate_fn=ragged, drop_last=True,
                                 persistent_workers=True)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            running = 0.0
            for step, (src, tgt, motion) in enumerate(self.loader):
                loss = nn.functional.smooth_l1_loss(self.net(src, tgt), motion)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                running += loss.item()
                if step % 10 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            log.info("epoch %d mean %.4f", epoch, running / len(self.loader))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    Trainer(Config()).fit()
