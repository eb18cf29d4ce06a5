"""Reads totals off photographed receipts: digits in a line, unreadable files are replaced while training."""
import argparse
import functools
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, UnidentifiedImageError
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("receipts")
DIGITS, WIDTH, HEIGHT = 4, 240, 64


def print_receipts(folder, count, seed=3):
    g = np.random.default_rng(seed)
    for i in range(count):
        text = "".join(str(d) for d in g.integers(0, 10, DIGITS))
        small = Image.new("L", (60, 16), 230)
        ImageDraw.Draw(small).text((4 + int(g.integers(6)), 2), " ".join(text), fill=20)
        page = small.resize((WIDTH * 2, HEIGHT * 2), Image.Resampling.BICUBIC).rotate(g.uniform(-3, 3), fillcolor=230)
        noise = g.normal(0, 18, (HEIGHT * 2, WIDTH * 2))
        page = Image.fromarray((np.asarray(page, np.float32) + noise).clip(0, 255).astype(np.uint8))
        path = folder / f"{i:05d}_{text}.png"
        page.save(path, compress_level=1)
        if i % 211 == 100:
            path.write_bytes(path.read_bytes()[:60])


def tolerant(*errors, tries=5):
    """Decorator for `load`: another receipt is taken where one cannot be read."""

    class Unreadable(Exception):
        pass

    def wrap(load):
        def once(self, i):
            try:
                return load(self, i)
            except errors as e:
                raise Unreadable(i) from e

        @functools.wraps(load)
        def inner(self, i):
            for k in range(tries):
                try:
                    return once(self, (i + 37 * k) % len(self))
                except Unreadable as e:
                    log.debug("receipt %s cannot be read", e)
            raise RuntimeError(f"{tries} unreadable receipts in a row, from {i}")

        return inner

    return wrap


class Contrast:
    """Works on its own copy; the thumbnails of the dataset stay as they are."""

    def __call__(self, x):
        x = x.copy()
        x -= np.median(x)
        x /= x.std() + 1e-6
        return x


class Receipts(Dataset):
    def __init__(self, folder, thumbnails=64):
        self.files = np.array(sorted(str(p) for p in Path(folder).glob("*.png")))
        self.contrast = Contrast()
        self.cache = {}
        self.limit = thumbnails

    def __len__(self):
        return len(self.files)

    @tolerant(UnidentifiedImageError, OSError, SyntaxError)
    def load(self, i):
        name = str(self.files[i])
        if i not in self.cache:
            with Image.open(name) as im:
                x = np.asarray(im.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS), np.float32)
            if len(self.cache) >= self.limit:
                return x, name
            self.cache[i] = x
        return self.cache[i], name

    def __getitem__(self, i):
        x, name = self.load(i)
        x = self.contrast(x)
        shear = np.random.randint(-3, 4)
        x = np.stack([np.roll(row, shear * (r - HEIGHT // 2) // HEIGHT) for r, row in enumerate(x)])
        spectrum = np.abs(np.fft.fft2(x, (4 * HEIGHT, 4 * WIDTH)))[:HEIGHT, :WIDTH]
        label = torch.tensor([int(c) for c in Path(name).stem.split("_")[1]])
        return torch.from_numpy(np.stack([x, np.log1p(spectrum)])[:, ::2, ::2].astype(np.float32)), label


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d((4, 16)), nn.Flatten())
        self.out = nn.Linear(16 * 64, DIGITS * 10)

    def forward(self, x):
        return self.out(self.features(x)).view(-1, DIGITS, 10)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--receipts", type=int, default=800)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(8)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="receipts-") as tmp:
        print_receipts(Path(tmp), a.receipts)
        train, val = random_split(Receipts(tmp), [0.9, 0.1])
        keep = a.workers > 0
        train_loader = DataLoader(train, 30, shuffle=True, num_workers=a.workers, persistent_workers=keep)
        val_loader = DataLoader(val, 25, num_workers=min(a.workers, 1), persistent_workers=keep)
        net = Reader()
        opt = torch.optim.Adam(net.parameters(), 2e-3)
        for epoch in range(a.epochs):
            t, losses = time.time(), []
            for x, y in train_loader:
                loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            with torch.no_grad():
                hits = torch.cat([(net(x).argmax(-1) == y).flatten() for x, y in val_loader]).float().mean()
            log.info("epoch %d loss %.3f digits right %.3f (%.1f s)", epoch, np.mean(losses), hits, time.time() - t)


if __name__ == "__main__":
    main()
