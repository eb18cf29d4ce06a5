# cause: thread-pool-after-fork
"""Classify textures through kernel maps against a set of landmarks that is computed before training."""
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Resources:
    threads: int = 2
    workers: int = 2

    def apply(self, _worker=None):
        """Same numeric settings everywhere, so that results do not depend on where a map is computed."""
        torch.set_num_threads(self.threads)
        torch.set_flush_denormal(True)


@dataclass
class Config:
    samples: int = 160
    landmarks: int = 768
    dim: int = 1024
    batch: int = 16
    epochs: int = 2
    resources: Resources = None


def write_patches(folder, cfg):
    rng = np.random.default_rng(41)
    labels = rng.integers(0, 4, cfg.samples)
    t = np.arange(cfg.dim)
    for k, y in enumerate(labels):
        x = np.sin(t * (0.05 + 0.03 * y) + rng.uniform(0, 6)) + rng.normal(0, 0.6, cfg.dim)
        np.save(os.path.join(folder, f"{k:05d}.npy"), x.astype(np.float16))
    return labels


class Landmarks:
    def __init__(self, cfg):
        g = torch.Generator().manual_seed(0)
        raw = torch.randn(cfg.landmarks, cfg.dim, generator=g)
        gram = raw @ raw.T / cfg.dim
        self.points = torch.linalg.cholesky(gram + torch.eye(cfg.landmarks)) @ raw
        self.points /= self.points.norm(dim=1, keepdim=True)

    def project(self, x, shifts):
        stack = torch.stack([x.roll(s) for s in shifts])
        sims = stack @ self.points.T
        return torch.exp(-(2 - 2 * sims / stack.norm(dim=1, keepdim=True)))


class KernelMaps(Dataset):
    def __init__(self, folder, labels, landmarks, shifts=64):
        self.folder, self.labels, self.landmarks = folder, labels, landmarks
        self.shifts = list(range(0, shifts * 3, 3))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, k):
        x = torch.from_numpy(np.load(os.path.join(self.folder, f"{k:05d}.npy")).astype(np.float32))
        phi = self.landmarks.project(x, self.shifts)
        return torch.cat([phi.mean(0), phi.amax(0)]), int(self.labels[k])


def run(cfg):
    cfg.resources.apply()
    with tempfile.TemporaryDirectory(prefix="textures_") as folder:
        labels = write_patches(folder, cfg)
        landmarks = Landmarks(cfg)
        data = KernelMaps(folder, labels, landmarks)
        loader = DataLoader(data, batch_size=cfg.batch, shuffle=True, num_workers=cfg.resources.workers,
                            worker_init_fn=cfg.resources.apply, persistent_workers=True)
        head = nn.Sequential(nn.LayerNorm(2 * cfg.landmarks), nn.Linear(2 * cfg.landmarks, 4))
        opt = torch.optim.Adam(head.parameters(), lr=1e-3)
        for epoch in range(cfg.epochs):
            hits = 0
            for x, y in loader:
                logits = head(x)
                loss = nn.functional.cross_entropy(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += (logits.argmax(1) == y).sum().item()
            print(f"epoch {epoch}: accuracy {hits / len(data):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    run(Config(resources=Resources()))
