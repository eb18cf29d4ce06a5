# cause: iterator-rebuilt-each-step
"""Unsupervised domain adaptation: labelled synthetic street crops, unlabelled camera crops."""
import argparse
import io
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def jpeg_pool(n, seed, tint):
    rng = np.random.default_rng(seed)
    pool = []
    for _ in range(n):
        small = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        img = Image.fromarray(small).resize((96, 96), Image.BICUBIC)
        arr = np.clip(np.asarray(img, dtype=np.int16) + tint, 0, 255).astype(np.uint8)
        buf = io.BytesIO()
        Image.fromarray(arr).save(buf, "JPEG", quality=85)
        pool.append(buf.getvalue())
    return pool


class Decode:
    def __init__(self, size):
        self.size = size

    def __call__(self, raw):
        img = Image.open(io.BytesIO(raw)).convert("RGB").resize((self.size, self.size))
        return torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255


class Flip:
    def __call__(self, x):
        return x.flip(-1) if torch.rand(()) < 0.5 else x


class Compose:
    def __init__(self, *ts):
        self.ts = ts

    def __call__(self, x):
        for t in self.ts:
            x = t(x)
        return x


class StreetCrops(Dataset):
    def __init__(self, pool, length, transform, labelled):
        self.pool, self.length, self.transform, self.labelled = pool, length, transform, labelled

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        x = self.transform(self.pool[i % len(self.pool)])
        return (x, i % len(self.pool) % 4) if self.labelled else x


class Domain:
    """A loader with the small conveniences the step function wants."""

    def __init__(self, name, dataset, batch_size, workers):
        self.name = name
        self.loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=workers, drop_last=True)

    def epoch(self):
        return self.loader

    def batch(self):
        return next(iter(self.loader))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.cls = nn.Linear(64, 4)

    def forward(self, x):
        f = self.body(x)
        return f, self.cls(f)


def coral(a, b):
    ca, cb = torch.cov(a.T), torch.cov(b.T)
    return ((ca - cb) ** 2).mean()


def train(args):
    tf = Compose(Decode(48), Flip())
    source = Domain("synthetic", StreetCrops(jpeg_pool(200, 0, 0), 3200, tf, True), args.batch, 2)
    target = Domain("camera", StreetCrops(jpeg_pool(200, 1, 25), 3200, tf, False), args.batch, 2)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        tic = time.time()
        for step, (xs, ys) in enumerate(source.epoch()):
            xt = target.batch()
            fs, logits = net(xs)
            ft, _ = net(xt)
            loss = nn.functional.cross_entropy(logits, ys) + args.weight * coral(fs, ft)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"[{epoch}:{step:03d}] loss {loss.item():.4f} {time.time() - tic:.1f}s", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--weight", type=float, default=0.3)
    train(p.parse_args())
