"""Plant disease classifier: random augmentation in training, fixed views in validation."""
import argparse
import os
import random
import shutil
import tempfile

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RandomView:
    def __init__(self, size):
        self.size = size

    def __call__(self, im, index):
        x, y = random.randint(0, im.width - self.size), random.randint(0, im.height - self.size)
        im = im.crop((x, y, x + self.size, y + self.size))
        if random.random() < 0.5:
            im = im.transpose(Image.FLIP_LEFT_RIGHT)
        return ImageEnhance.Brightness(im).enhance(random.uniform(0.8, 1.2))


class FixedView:
    """The same off-centre crop for an image every time, so that epochs can be compared."""

    def __init__(self, size, seed=0):
        self.size, self.seed = size, seed

    def __call__(self, im, index):
        rng = random.Random(self.seed * 100003 + index)
        x, y = rng.randint(0, im.width - self.size), rng.randint(0, im.height - self.size)
        return im.crop((x, y, x + self.size, y + self.size))


class Leaves(Dataset):
    def __init__(self, rows, view):
        self.rows, self.view = rows, view

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        path, label = self.rows[i]
        with Image.open(path) as im:
            im = self.view(im.convert("RGB"), i)
        return torch.from_numpy(np.array(im, dtype=np.float32).transpose(2, 0, 1) / 255.0), label


def grow(folder, n):
    rs = np.random.RandomState(0)
    rows = []
    for i in range(n):
        label = i % 3
        a = rs.normal([60, 140, 50], 20, (140, 140, 3))
        for _ in range(label * 12):
            x, y = rs.randint(0, 130, 2)
            a[x:x + 8, y:y + 8] = [120, 80, 20]
        path = os.path.join(folder, f"leaf{i:04d}.jpg")
        Image.fromarray(a.clip(0, 255).astype("uint8")).save(path, quality=92)
        rows.append((path, label))
    return rows


def run_epoch(model, loader, opt=None):
    model.train(opt is not None)
    good = n = 0
    with torch.set_grad_enabled(opt is not None):
        for x, y in loader:
            out = model(x)
            if opt is not None:
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            good, n = good + (out.argmax(1) == y).sum().item(), n + len(y)
    return good / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        rows = grow(folder, 160)
        train = DataLoader(Leaves(rows[:128], RandomView(96)), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        val = DataLoader(Leaves(rows[128:], FixedView(96)), batch_size=16)
        model = nn.Sequential(nn.Conv2d(3, 20, 5, 2), nn.ReLU(), nn.Conv2d(20, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            print(f"epoch {epoch} train {run_epoch(model, train, opt):.3f} val {run_epoch(model, val):.3f}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
