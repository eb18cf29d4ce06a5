"""Script classification on digitised manuscripts (multi-page tiff volumes, one volume per library)."""
import argparse
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Volume:
    """A tiff with many pages; every process has its own open image."""

    def __init__(self, path):
        self.path = str(path)
        with Image.open(path) as im:
            self.pages = im.n_frames
        self._image = self._owner = None

    def page(self, k):
        if self._owner != os.getpid():
            self._image, self._owner = Image.open(self.path), os.getpid()
        self._image.seek(k)
        return np.asarray(self._image, np.float32) / 255

    @staticmethod
    def write(path, labels, side, rng):
        frames = []
        for s in labels:
            px = rng.integers(150, 255, (side, side), dtype=np.uint8)
            px[:: 6 + 4 * s] //= 4
            frames.append(Image.fromarray(px))
        frames[0].save(path, save_all=True, append_images=frames[1:], compression="tiff_adobe_deflate")


class Pages(Dataset):
    def __init__(self, volume, labels, crop):
        self.volume, self.labels, self.crop = volume, labels, crop
        self.rng = random.Random()

    def __len__(self):
        return self.volume.pages

    def __getitem__(self, k):
        page = self.volume.page(k)
        top, left = (self.rng.randrange(page.shape[0] - self.crop) for _ in range(2))
        patch = page[top:top + self.crop, left:left + self.crop]
        fade = self.rng.uniform(0.7, 1.0)
        time.sleep(0.005)                                    # the volumes are on a network share
        return torch.from_numpy(patch * fade)[None], int(self.labels[k])


def seed_worker(_):
    info = torch.utils.data.get_worker_info()
    for n, part in enumerate(info.dataset.datasets):
        part.rng.seed(info.seed + n)


class ScriptNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU())
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--volumes", type=int, default=2)
    p.add_argument("--pages", type=int, default=80)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        rng = np.random.default_rng(0)
        parts = []
        for i in range(args.volumes):
            labels = rng.integers(0, 3, args.pages)
            Volume.write(Path(tmp) / f"vol{i}.tif", labels, 256, rng)
            parts.append(Pages(Volume(Path(tmp) / f"vol{i}.tif"), labels, 128))
        loader = DataLoader(ConcatDataset(parts), 8, shuffle=True, num_workers=args.workers, worker_init_fn=seed_worker,
                            persistent_workers=True)
        model = ScriptNet(3)
        opt = torch.optim.AdamW(model.parameters(), 3e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.05)                             # rest of the step runs on the accelerator
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
