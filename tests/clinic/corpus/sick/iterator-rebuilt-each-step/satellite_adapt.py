# cause: iterator-rebuilt-each-step
"""Unsupervised domain adaptation: labelled summer scenes against unlabelled winter scenes (correlation alignment)."""
import argparse
import io
import itertools
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


def paint(kind, season, rng):
    base = (70, 120, 60) if season == "summer" else (210, 215, 225)
    im = Image.new("RGB", (48, 48), base)
    d = ImageDraw.Draw(im)
    for _ in range(6):
        x, y = rng.randrange(40), rng.randrange(40)
        shade = tuple(max(0, c - rng.randrange(80)) for c in base)
        (d.ellipse if kind == 0 else d.rectangle)([x, y, x + 8, y + 8], fill=shade)
    buf = io.BytesIO()
    im.save(buf, "PNG")
    return buf.getvalue()


class Scenes(Dataset):
    def __init__(self, season, count, seed):
        rng = random.Random(seed)
        self.blobs = [(paint(i % 2, season, rng), i % 2) for i in range(count)]

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, i):
        blob, label = self.blobs[i]
        im = Image.open(io.BytesIO(blob)).convert("RGB").rotate(float(torch.rand(()) * 30), resample=Image.BICUBIC)
        im = im.resize((64, 64), Image.LANCZOS)
        return torch.from_numpy(np.asarray(im, dtype=np.float32).transpose(2, 0, 1) / 255), label


class Pairing:
    """Hands out one labelled and one unlabelled batch per call."""

    def __init__(self, *loaders):
        self.loaders = loaders

    def draw(self, count):
        return itertools.islice(zip(*self.loaders), count)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                                      nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(64, 2)


def coral(a, b):
    def cov(x):
        x = x - x.mean(0)
        return x.t() @ x / (len(x) - 1)
    return (cov(a) - cov(b)).pow(2).mean()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--weight", type=float, default=0.5)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    options = dict(batch_size=args.batch, shuffle=True, drop_last=True)
    feed = Pairing(DataLoader(Scenes("summer", 320, 1), num_workers=2, **options),
                   DataLoader(Scenes("winter", 320, 2), num_workers=1, **options))
    net = Encoder()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    began = time.time()
    for step in range(args.steps):
        for (xs, ys), (xt, _) in feed.draw(1):
            fs, ft = net.features(xs), net.features(xt)
            loss = F.cross_entropy(net.head(fs), ys) + args.weight * coral(fs, ft)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if step % 15 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    print(f"{args.steps} steps in {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
