# cause: shm-exhausted
# limits: shm=64M
"""Lesion segmentation in synthetic liver CT volumes: random crops for training, whole scans for validation."""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    train_scans: int = 64
    val_scans: int = 8
    crop: int = 40
    depth: int = 48
    size: int = 224
    epochs: int = 3
    workers: int = 2
    lr: float = 1e-3


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, volume, mask):
        for step in self.steps:
            volume, mask = step(volume, mask)
        return volume, mask


class WindowLevel:
    """Two intensity windows as channels, the way radiologists look at the abdomen."""

    def __init__(self, windows=((40, 400), (80, 150))):
        self.windows = windows

    def __call__(self, volume, mask):
        channels = [np.clip((volume - c + w / 2) / w, 0, 1) for c, w in self.windows]
        return np.stack(channels).astype(np.float32), mask


class RandomCrop:
    def __init__(self, edge):
        self.edge = edge

    def __call__(self, volume, mask):
        corner = [np.random.randint(0, s - self.edge + 1) for s in volume.shape]
        where = tuple(slice(c, c + self.edge) for c in corner)
        return volume[where], mask[where]


class RandomFlip:
    def __call__(self, volume, mask):
        for axis in range(3):
            if np.random.rand() < 0.5:
                volume, mask = np.flip(volume, axis), np.flip(mask, axis)
        return volume, mask


class Scans(Dataset):
    def __init__(self, ids, shape, transform):
        self.ids, self.shape, self.transform = list(ids), shape, transform

    def __len__(self):
        return len(self.ids)

    def _acquire(self, scan_id):
        rng = np.random.default_rng(scan_id)
        d, h, w = self.shape
        volume = rng.standard_normal((d, h // 4, w // 4), dtype=np.float32) * 30 + 60
        volume = volume.repeat(4, 1).repeat(4, 2)
        z, y, x = np.ogrid[:d, :h, :w]
        mask = np.zeros(self.shape, np.uint8)
        for _ in range(3):
            cz, cy, cx = rng.uniform(0.2, 0.8, 3) * self.shape
            r = rng.uniform(6, 14)
            blob = (z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2 < r * r
            volume[blob] += 90
            mask[blob] = 1
        return volume, mask

    def __getitem__(self, i):
        volume, mask = self.transform(*self._acquire(self.ids[i]))
        return {
            "id": self.ids[i],
            "volume": torch.from_numpy(np.ascontiguousarray(volume)),
            "mask": torch.from_numpy(np.ascontiguousarray(mask)).long(),
        }


class TinyUNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down = nn.Conv3d(2, width, 3, stride=2, padding=1)
        self.mid = nn.Conv3d(width, width, 3, padding=1)
        self.out = nn.Conv3d(width, 2, 1)

    def forward(self, x):
        y = F.relu(self.mid(F.relu(self.down(x))))
        return F.interpolate(self.out(y), size=x.shape[2:], mode="nearest")


class Trainer:
    def __init__(self, config):
        self.config = config
        shape = (config.depth, config.size, config.size)
        train = Scans(range(config.train_scans), shape, Compose(RandomCrop(config.crop), RandomFlip(), WindowLevel()))
        val = Scans(range(1000, 1000 + config.val_scans), shape, WindowLevel())
        common = dict(num_workers=config.workers, persistent_workers=True)
        self.train_loader = DataLoader(train, batch_size=4, shuffle=True, **common)
        self.val_loader = DataLoader(val, batch_size=4, **common)
        self.model = TinyUNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.weight = torch.tensor([0.2, 0.8])

    def fit(self):
        for epoch in range(self.config.epochs):
            losses = [self.step(batch) for batch in self.train_loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}", flush=True)
            print(f"epoch {epoch}: dice {self.validate():.3f}", flush=True)

    def step(self, batch):
        self.model.train()
        loss = F.cross_entropy(self.model(batch["volume"]), batch["mask"], self.weight)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        scores = []
        for batch in self.val_loader:
            found = self.model(batch["volume"]).argmax(1)
            both = (found * batch["mask"]).sum()
            scores.append(float(2 * both / (found.sum() + batch["mask"].sum()).clamp(min=1)))
        return float(np.mean(scores))


if __name__ == "__main__":
    torch.manual_seed(3)
    Trainer(Config()).fit()
