# cause: unpicklable-dataset
"""Crater density from orbital tiles, trained on several seeds.  Loaders come from a factory."""
import os
import random
import tempfile
from argparse import Namespace

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

CFG = Namespace(tiles=128, side=128, batch=16, epochs=2, workers=2, context="spawn", seeds=(1,), lr=2e-3)


def draw_tiles(folder, n, side):
    rng = np.random.default_rng(23)
    with open(os.path.join(folder, "tiles.tsv"), "w") as f:
        for k in range(n):
            im = Image.fromarray(rng.integers(90, 140, (side, side), dtype=np.uint8))
            d = ImageDraw.Draw(im)
            count = int(rng.integers(0, 20))
            for _ in range(count):
                x, y, r = rng.integers(0, side), rng.integers(0, side), rng.integers(3, 10)
                d.ellipse((x - r, y - r, x + r, y + r), outline=220, fill=40)
            im.save(os.path.join(folder, f"t{k:04d}.png"))
            f.write(f"t{k:04d}.png\t{count}\n")


class Tiles(Dataset):
    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "tiles.tsv")) as f:
            self.rows = [line.split() for line in f]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        name, count = self.rows[k]
        with Image.open(os.path.join(self.folder, name)) as im:
            im = im.rotate(random.choice((0, 90, 180, 270))).resize((96, 96), Image.LANCZOS)
        a = np.asarray(im, dtype=np.float32) / 255
        gy, gx = np.gradient(a)
        return torch.from_numpy(np.stack([a, np.hypot(gx, gy)])), torch.tensor(float(count))


def loader_factory(cfg):
    """Returns a function that makes a loader for a dataset and a seed."""

    def make(dataset, seed, shuffle):
        def init(worker):
            value = (seed * 1000 + worker) % 2 ** 32
            random.seed(value)
            np.random.seed(value)

        generator = torch.Generator()
        generator.manual_seed(seed)
        return DataLoader(dataset, batch_size=cfg.batch, shuffle=shuffle, num_workers=cfg.workers, worker_init_fn=init,
                          generator=generator, multiprocessing_context=cfg.context, persistent_workers=True)

    return make


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 10, 5, 2), nn.ReLU(), nn.Conv2d(10, 20, 3, 2), nn.ReLU())
        self.density = nn.Conv2d(20, 1, 1)

    def forward(self, x):
        return nn.functional.softplus(self.density(self.body(x))).sum((1, 2, 3))


def train(cfg, data, seed, make):
    torch.manual_seed(seed)
    loader = make(data, seed, shuffle=True)
    net = Counter()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        err = 0.0
        for x, y in loader:
            guess = net(x)
            loss = nn.functional.smooth_l1_loss(guess, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            err += (guess - y).abs().sum().item()
        print(f"seed {seed} epoch {epoch} off by {err / len(data):.2f} craters", flush=True)


def main(cfg):
    make = loader_factory(cfg)
    with tempfile.TemporaryDirectory(prefix="craters_") as folder:
        draw_tiles(folder, cfg.tiles, cfg.side)
        data = Tiles(folder)
        for seed in cfg.seeds:
            train(cfg, data, seed, make)


if __name__ == "__main__":
    main(CFG)
