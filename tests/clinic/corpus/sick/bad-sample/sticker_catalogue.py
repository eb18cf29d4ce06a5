# cause: bad-sample
"""Sticker style classifier on a folder of exported artwork."""
import csv
import os
import tempfile
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

STYLES = ("dots", "stripes", "rings")


class Row(NamedTuple):
    file: str
    style: int


def export_artwork(root, n=840):
    """Mimics the designers' exports; files that passed through the new editor are written by another code path."""
    rng = np.random.default_rng(31)
    rows = []
    for i in range(n):
        style = int(rng.integers(len(STYLES)))
        edited = i in (157, 402, 688)
        im = Image.new("RGBA" if edited else "RGB", (160, 160), tuple(int(v) for v in rng.integers(0, 255, 3)))
        draw = ImageDraw.Draw(im)
        ink = tuple(int(v) for v in rng.integers(0, 255, 3))
        for k in range(6):
            a = 24 * k + int(rng.integers(0, 8))
            if style == 0:
                draw.ellipse((a, a, a + 14, a + 14), fill=ink)
            elif style == 1:
                draw.line((a, 0, a, 160), fill=ink, width=6)
            else:
                draw.ellipse((8 * k, 8 * k, 160 - 8 * k, 160 - 8 * k), outline=ink, width=3)
        name = f"{i:05d}.png"
        im.save(os.path.join(root, name))
        rows.append(Row(name, style))
    with open(os.path.join(root, "index.csv"), "w", newline="") as fh:
        csv.writer(fh).writerows(rows)


class Stickers(Dataset):
    def __init__(self, root, side=64):
        self.root, self.side = root, side
        with open(os.path.join(root, "index.csv"), newline="") as fh:
            self.rows = [Row(f, int(s)) for f, s in csv.reader(fh)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        with Image.open(os.path.join(self.root, row.file)) as im:
            im = im.resize((self.side, self.side), Image.LANCZOS)
            x = np.asarray(im, dtype=np.float32) / 127.5 - 1.0
        return torch.from_numpy(x).permute(2, 0, 1), row.style


class BalancedSampler(Sampler):
    """Interleaves the styles so that batches are roughly balanced; every row is visited once."""

    def __init__(self, styles):
        self.pools = [[i for i, s in enumerate(styles) if s == k] for k in range(len(STYLES))]

    def __len__(self):
        return sum(map(len, self.pools))

    def __iter__(self):
        order = []
        for pool in self.pools:
            p = torch.randperm(len(pool)).tolist()
            order += [((rank + 0.5) / len(pool), pool[j]) for rank, j in enumerate(p)]
        return iter([i for _, i in sorted(order)])


def make_net():
    return nn.Sequential(nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(144, len(STYLES)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as folder:
        export_artwork(folder)
        ds = Stickers(folder)
        loader = DataLoader(ds, batch_size=20, sampler=BalancedSampler([r.style for r in ds.rows]), num_workers=2)
        net = make_net()
        opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        for epoch in range(4):
            good = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                good += (out.argmax(1) == y).sum().item()
            print(f"epoch {epoch}: accuracy {good / len(ds):.3f}", flush=True)
