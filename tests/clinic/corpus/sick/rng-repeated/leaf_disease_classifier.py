# cause: rng-repeated
"""Leaf disease classifier: small CNN on photographs of leaves kept as PNG files."""
import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CLASSES = ["healthy", "rust", "mildew", "scab"]


def draw_leaf(kind, g):
    yy, xx = np.mgrid[-1:1:224j, -1:1:224j]
    leaf = ((xx / 0.6) ** 2 + (yy / 0.9) ** 2 < 1).astype(np.float32)
    img = np.stack([0.2 * leaf, 0.6 * leaf, 0.15 * leaf], -1) + 0.1 * g.random((224, 224, 3))
    for _ in range(0 if kind == 0 else 12):
        cx, cy, r = g.uniform(-0.5, 0.5), g.uniform(-0.7, 0.7), g.uniform(0.03, 0.12)
        spot = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        img[spot] = [(0.7, 0.3, 0.1), (0.9, 0.9, 0.85), (0.2, 0.15, 0.1)][kind - 1]
    return Image.fromarray((img.clip(0, 1) * 255).astype(np.uint8))


def make_photos(root, n, seed):
    g = np.random.default_rng(seed)
    for i in range(n):
        k = i % len(CLASSES)
        draw_leaf(k, g).save(root / f"{i:05d}_{CLASSES[k]}.png")


class Photos(Dataset):
    def __init__(self, root):
        self.root = Path(root)
        names = sorted(p.name for p in self.root.glob("*.png"))
        self.names = np.array(names)
        self.labels = np.array([CLASSES.index(n[6:-4]) for n in names])

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with Image.open(self.root / str(self.names[i])) as im:
            return im.convert("RGB"), int(self.labels[i])


class Op:
    """Base of the augmentations; `settings` carries what they have in common."""

    def __init__(self, settings):
        self.s = settings


class Flip(Op):
    def __call__(self, im):
        return im.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self.s["dice"].random() < 0.5 else im


class Rotate(Op):
    def __call__(self, im):
        return im.rotate(self.s["dice"].uniform(-35, 35), Image.Resampling.BICUBIC)


class Crop(Op):
    def __call__(self, im):
        size = int(self.s["dice"].integers(150, 224))
        x, y = self.s["dice"].integers(0, 225 - size, 2)
        return im.crop((x, y, x + size, y + size))


class Blur(Op):
    def __call__(self, im):
        return im.filter(ImageFilter.GaussianBlur(self.s["dice"].uniform(0, 1.5)))


class Pipeline:
    def __init__(self, ops, size=96):
        self.ops, self.size = ops, size

    def __call__(self, im):
        for op in self.ops:
            im = op(im)
        im = im.resize((self.size, self.size), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(im, np.float32).transpose(2, 0, 1) / 255.0)


class View(Dataset):
    def __init__(self, base, pipeline):
        self.base, self.pipeline = base, pipeline

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        im, y = self.base[i]
        return self.pipeline(im), y


def train_pipeline(seed):
    settings = {"dice": np.random.default_rng(seed), "version": 2}
    return Pipeline([Flip(settings), Rotate(settings), Crop(settings), Blur(settings)])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--photos", type=int, default=900)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--seed", type=int, default=7)
    a = ap.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="leaves-"))
    try:
        make_photos(root, a.photos, a.seed)
        photos = Photos(root)
        fit, held = random_split(photos, [len(photos) - 100, 100])
        train = DataLoader(View(fit, train_pipeline(a.seed)), a.batch, shuffle=True, num_workers=2, persistent_workers=True)
        val = DataLoader(View(held, Pipeline([])), 50)
        net = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, len(CLASSES)))
        opt = torch.optim.AdamW(net.parameters(), 3e-3)
        for epoch in range(a.epochs):
            t, total = time.time(), 0.0
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad(); loss.backward(); opt.step()
                total += loss.item() * len(y)
            with torch.no_grad():
                hits = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
            print(f"epoch {epoch} loss {total / len(fit):.4f} val acc {hits / len(held):.3f} ({time.time() - t:.1f} s)", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
