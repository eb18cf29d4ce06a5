# cause: per-worker-cache
"""Patch classification on scanned slides; decoding is the expensive part, so decoded arrays are kept."""
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 400


def scan_slides(folder, n):
    rng = np.random.default_rng(4)
    for k in range(n):
        kind = k % 3
        tint = np.array([200, 120 + 30 * kind, 180])
        base = tint + 40 * np.sin(np.arange(SIDE) / (9 + 4 * kind) + rng.uniform(0, 6))[:, None]
        spots = (rng.random((SIDE, SIDE, 1)) < 0.01) * 60
        Image.fromarray((base - spots).clip(0, 255).astype(np.uint8)).save(
            folder / f"{kind}_{k:04d}.jpg", quality=92)


class DecodedStore:
    def __init__(self):
        self._arrays = {}

    def get(self, path):
        arr = self._arrays.get(path)
        if arr is None:
            with Image.open(path) as im:
                arr = np.asarray(im.convert("RGB"))
            self._arrays[path] = arr
        return arr


class SlidePatches(Dataset):
    def __init__(self, paths, store, crop=160, train=True):
        self.paths = paths
        self.store = store
        self.crop = crop
        self.train = train

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        path = self.paths[i]
        slide = self.store.get(path)
        free = SIDE - self.crop
        top, left = (np.random.randint(free), np.random.randint(free)) if self.train else (free // 2, free // 2)
        patch = slide[top : top + self.crop, left : left + self.crop]
        img = Image.fromarray(patch).rotate(np.random.uniform(0, 90) if self.train else 0, Image.BICUBIC)
        x = np.asarray(img.resize((64, 64), Image.LANCZOS), dtype=np.float32) / 255
        return torch.from_numpy(x.transpose(2, 0, 1).copy()), int(path.name[0])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(),
                                      nn.AdaptiveAvgPool2d(2))
        self.fc = nn.Linear(64, 3)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def main(epochs=8):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        scan_slides(folder, 520)
        paths = sorted(folder.glob("*.jpg"))
        np.random.default_rng(0).shuffle(paths)
        store = DecodedStore()
        opts = dict(batch_size=10, num_workers=3, persistent_workers=True)
        train = DataLoader(SlidePatches(paths[:460], store), shuffle=True, **opts)
        val = DataLoader(SlidePatches(paths[460:], store, train=False), **opts)
        net = Classifier()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(epochs):
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                good = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
            print(f"epoch {epoch} loss {loss.item():.3f} val {good / 60:.2f}", flush=True)


if __name__ == "__main__":
    main()
