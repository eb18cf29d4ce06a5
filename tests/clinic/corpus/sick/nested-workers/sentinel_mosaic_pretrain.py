# cause: nested-workers
"""Masked pre-training on Sentinel-2 mosaics: each item is a mosaic put together from its granules."""
import os
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class MosaicConfig:
    granules: int = 9
    side: int = 64
    bands: int = 4
    mosaics: int = 48
    mask_ratio: float = 0.6


@dataclass
class TrainConfig:
    batch_size: int = 4
    num_workers: int = 2
    granule_workers: int = 2
    epochs: int = 3
    lr: float = 1e-3
    data: MosaicConfig = field(default_factory=MosaicConfig)


class GranuleReader(Dataset):
    """The granules of one mosaic, read and rescaled one by one."""

    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        dn = np.load(self.paths[i]).astype(np.float32)
        lo, hi = np.percentile(dn, (2, 98))
        return torch.from_numpy(np.clip((dn - lo) / (hi - lo + 1e-6), 0, 1))


class MosaicDataset(Dataset):
    def __init__(self, root, cfg, granule_workers):
        self.folders = sorted(os.path.join(root, d) for d in os.listdir(root))
        self.cfg = cfg
        self.granule_workers = granule_workers

    def __len__(self):
        return len(self.folders)

    def load_granules(self, folder):
        loader = DataLoader(GranuleReader(folder), batch_size=3, num_workers=self.granule_workers)
        return torch.cat(list(loader))

    def __getitem__(self, i):
        tiles = self.load_granules(self.folders[i])
        n = int(self.cfg.granules ** 0.5)
        rows = [torch.cat(list(tiles[r * n:(r + 1) * n]), dim=-1) for r in range(n)]
        return torch.cat(rows, dim=-2)


def acquire(root, cfg):
    rng = np.random.default_rng(2)
    for m in range(cfg.mosaics):
        d = os.path.join(root, f"mosaic_{m:03d}")
        os.makedirs(d)
        for g in range(cfg.granules):
            np.save(os.path.join(d, f"granule_{g}.npy"),
                    rng.integers(300, 8000, size=(cfg.bands, cfg.side, cfg.side), dtype=np.uint16))


class Autoencoder(nn.Module):
    def __init__(self, bands, width=24):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(bands, width, 4, 4), nn.GELU(), nn.Conv2d(width, 2 * width, 2, 2), nn.GELU())
        self.dec = nn.Sequential(nn.ConvTranspose2d(2 * width, width, 2, 2), nn.GELU(), nn.ConvTranspose2d(width, bands, 4, 4))

    def forward(self, x):
        return self.dec(self.enc(x))


class Pretrainer:
    def __init__(self, cfg: TrainConfig, root: str):
        self.cfg = cfg
        self.data = MosaicDataset(root, cfg.data, cfg.granule_workers)
        self.model = Autoencoder(cfg.data.bands)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        side = cfg.data.side * int(cfg.data.granules ** 0.5)
        self.grid = side // 8

    def band_statistics(self, n=4):
        """Quick look at a few mosaics before the run."""
        stack = torch.stack([self.data[i] for i in range(n)])
        return stack.mean((0, 2, 3)), stack.std((0, 2, 3))

    def mask(self, x):
        keep = (torch.rand(len(x), 1, self.grid, self.grid) > self.cfg.data.mask_ratio).float()
        return nn.functional.interpolate(keep, size=x.shape[-2:])

    def run(self):
        mean, std = self.band_statistics()
        print("band means", [round(v, 3) for v in mean.tolist()], flush=True)
        loader = DataLoader(self.data, self.cfg.batch_size, shuffle=True, num_workers=self.cfg.num_workers, drop_last=True)
        for epoch in range(self.cfg.epochs):
            total = 0.0
            for x in loader:
                x = (x - mean[:, None, None]) / std[:, None, None]
                keep = self.mask(x)
                loss = (((self.model(x * keep) - x) ** 2) * (1 - keep)).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            print(f"epoch {epoch} masked mse {total / len(loader):.4f}", flush=True)


def main():
    torch.manual_seed(0)
    cfg = TrainConfig()
    with tempfile.TemporaryDirectory() as root:
        acquire(root, cfg.data)
        Pretrainer(cfg, root).run()


if __name__ == "__main__":
    main()
