# cause: shm-exhausted
# limits: shm=64M
"""Monocular depth from rendered frames; renders are built in a scratch segment and reduced to crops."""
import contextlib
import math
from dataclasses import dataclass
from multiprocessing import shared_memory

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Settings:
    scenes: int = 64
    height: int = 1500
    width: int = 1600
    crop: int = 96
    batch: int = 8
    workers: int = 2
    epochs: int = 2
    lr: float = 2e-3


@contextlib.contextmanager
def scratch(shape, dtype=np.float32):
    """A canvas large enough for a full resolution render."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    seg = shared_memory.SharedMemory(create=True, size=nbytes)
    view = np.ndarray(shape, dtype, buffer=seg.buf)
    try:
        yield view
    finally:
        del view
        seg.close()
        seg.unlink()


class Renderer:
    def __init__(self, cfg: Settings):
        self.cfg = cfg

    def render(self, scene: int):
        c = self.cfg
        rng = np.random.default_rng([scene, int(torch.randint(0, 2**31 - 1, ()))])
        with scratch((4, c.height, c.width)) as canvas:
            tilt = rng.uniform(-1, 1, 2)
            yy = np.linspace(-1, 1, c.height, dtype=np.float32)[:, None]
            xx = np.linspace(-1, 1, c.width, dtype=np.float32)[None]
            canvas[3] = 2.0 + tilt[0] * yy + tilt[1] * xx
            for ch in range(3):
                canvas[ch] = np.cos(canvas[3] * rng.uniform(2, 8)) / (1 + canvas[3] ** 2)
            top = int(rng.integers(0, c.height - c.crop))
            left = int(rng.integers(0, c.width - c.crop))
            return canvas[:, top:top + c.crop, left:left + c.crop].copy()


class DepthCrops(Dataset):
    def __init__(self, cfg: Settings):
        self.renderer = Renderer(cfg)
        self.n = cfg.scenes

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        crop = torch.from_numpy(self.renderer.render(i))
        return crop[:3].clone(), crop[3:].clone()


class DepthNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 1, 1), nn.Softplus())


def silog(pred, target):
    d = torch.log(pred + 1e-3) - torch.log(target.clamp_min(1e-3))
    return (d.pow(2).mean() - 0.5 * d.mean().pow(2)).clamp_min(1e-8).sqrt()


class Trainer:
    def __init__(self, cfg: Settings):
        self.cfg = cfg
        self.loader = DataLoader(DepthCrops(cfg), cfg.batch, shuffle=True, num_workers=cfg.workers)
        self.net = DepthNet()
        self.opt = torch.optim.Adam(self.net.parameters(), cfg.lr)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            losses = [self.step(*batch) for batch in self.loader]
            print(f"epoch {epoch} silog {sum(losses) / len(losses):.4f}", flush=True)

    def step(self, image, depth):
        loss = silog(self.net(image), depth)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    Trainer(Settings()).fit()
