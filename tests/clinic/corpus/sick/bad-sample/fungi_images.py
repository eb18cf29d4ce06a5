# cause: bad-sample, dataset-raises
"""Mushroom species from photographs in a folder per class."""
import argparse
import os
import pathlib
import random
import shutil
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = ["amanita", "boletus", "cortinarius", "russula"]


class Resize:
    def __init__(self, side):
        self.side = side

    def __call__(self, im):
        return im.resize((self.side, self.side), Image.BILINEAR)


class ToTensor:
    def __call__(self, im):
        return torch.from_numpy(np.array(im, dtype=np.uint8)).permute(2, 0, 1).float().div(255)


class RandomFlip:
    def __call__(self, x):
        return x.flip(-1) if random.random() < 0.5 else x


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


class Folder(Dataset):
    def __init__(self, root, transform):
        root = pathlib.Path(root)
        self.samples = [(p, SPECIES.index(p.parent.name)) for p in sorted(root.glob("*/*.jpg"))]
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        path, label = self.samples[i]
        return self.transform(Image.open(path).convert("RGB")), label


def collect(root, per_class):
    rng = np.random.default_rng(2)
    for k, name in enumerate(SPECIES):
        d = pathlib.Path(root) / name
        d.mkdir()
        for i in range(per_class):
            px = rng.integers(0, 80, (90, 100, 3)) + 40 * k
            Image.fromarray(px.clip(0, 255).astype(np.uint8)).save(d / f"{i:04d}.jpg", quality=85)
    broken = pathlib.Path(root) / SPECIES[2] / "0041.jpg"
    os.truncate(broken, broken.stat().st_size // 3)


def build_model():
    return nn.Sequential(nn.Conv2d(3, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(24, len(SPECIES)))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--per-class", type=int, default=110)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="fungi")
    try:
        collect(root, args.per_class)
        loader = DataLoader(Folder(root, Compose(Resize(64), ToTensor(), RandomFlip())), batch_size=20, shuffle=True, num_workers=args.workers)
        model = build_model()
        opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        correct = total = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += (out.argmax(1) == y).sum().item()
            total += len(y)
            print(f"{total:5d} loss {loss.item():.3f} acc {correct / total:.3f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
