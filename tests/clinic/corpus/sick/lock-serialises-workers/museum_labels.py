# cause: lock-serialises-workers
# also: iterator-rebuilt-each-step
"""Classifying scanned specimen labels of a natural history collection."""
import argparse
import atexit
import contextlib
import multiprocessing
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Collection:
    """Specimen drawers on disk, presented one at a time by a robot."""

    def __init__(self, folder, latency):
        self.folder, self.latency = folder, latency
        self.desk = Desk()

    def fill(self, count, tag):
        for i in range(count):
            im = Image.new("L", (96, 32), 255)
            ImageDraw.Draw(im).text((4, 8), f"{'AB'[i % 2] * 3}-{i:04d}", fill=0)
            im.save(os.path.join(self.folder, f"{tag}{i:04d}_{i % 2}.png"))
        return sorted(n for n in os.listdir(self.folder) if n.startswith(tag))

    def fetch(self, name):
        with self.desk.visit():
            time.sleep(self.latency)
            with Image.open(os.path.join(self.folder, name)) as im:
                return im.convert("L").copy()


class Desk:
    def __init__(self):
        self._turn = multiprocessing.get_context("fork").RLock()
        self.visits = 0

    @contextlib.contextmanager
    def visit(self):
        self._turn.acquire()
        try:
            self.visits += 1
            yield self
        finally:
            self._turn.release()


class Labels(Dataset):
    def __init__(self, collection, names, jitter=0):
        self.collection, self.names, self.jitter = collection, names, jitter

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        im = self.collection.fetch(self.names[i])
        if self.jitter:
            im = im.rotate(float(torch.rand(()) - 0.5) * self.jitter, fillcolor=255)
        pixels = np.asarray(im, dtype=np.float32)[None] / 255
        return torch.from_numpy(pixels), int(self.names[i][-5])


class Probe:
    """Accuracy on randomly drawn groups of unseen labels, with its spread."""

    def __init__(self, loader, draws):
        self.loader, self.draws = loader, draws

    @torch.no_grad()
    def one(self, net):
        x, y = next(iter(self.loader))
        return (net(x).argmax(1) == y).float().mean()

    def __call__(self, net):
        scores = torch.stack([self.one(net) for _ in range(self.draws)])
        return scores.mean().item(), scores.std().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", type=int, default=420)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--latency", type=float, default=0.014)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="labels")
    atexit.register(shutil.rmtree, folder, True)
    train_side, check_side = Collection(folder, args.latency), Collection(folder, 0.001)
    train = Labels(train_side, train_side.fill(args.train, "t"), jitter=8)
    check = Labels(check_side, check_side.fill(64, "c"))
    loader = DataLoader(train, 8, shuffle=True, num_workers=args.workers)
    probe = Probe(DataLoader(check, 8, shuffle=True, num_workers=2), draws=25)
    net = nn.Sequential(nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(72, 2))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    began = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    trained = time.time()
    mean, spread = probe(net)
    print(f"unseen {mean:.3f} +- {spread:.3f}; training {trained - began:.1f}s, probing {time.time() - trained:.1f}s")


if __name__ == "__main__":
    main()
