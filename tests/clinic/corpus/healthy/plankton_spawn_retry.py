"""Plankton images from a mount that now and then fails a read; workers are spawned and seeded one by one."""
import argparse
import functools
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class FlakyMount:
    """Stands for the institute's network share: the first read of some files after a while gives EIO."""

    def __init__(self, root, rate=0.02):
        self.root, self.rate = root, rate
        self.failures = 0

    def read(self, name):
        if random.random() < self.rate:
            self.failures += 1
            raise OSError(5, "Input/output error", name)
        with open(os.path.join(self.root, name), "rb") as fh:
            return fh.read()


def retry(times, pause):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*a, **k):
            for attempt in range(times):
                try:
                    return fn(*a, **k)
                except OSError:
                    if attempt == times - 1:
                        raise
                    time.sleep(pause * (attempt + 1))
        return inner
    return wrap


class Plankton(Dataset):
    def __init__(self, mount, names):
        self.mount, self.names = mount, names
        self.rng = np.random.default_rng(0)          # replaced in each worker, see seed_worker

    def __len__(self):
        return len(self.names)

    @retry(times=6, pause=0.002)
    def _load(self, name):
        return np.frombuffer(self.mount.read(name), np.uint8).reshape(48, 48)

    def __getitem__(self, i):
        img = self._load(self.names[i]).astype(np.float32) / 255
        img = np.rot90(img, self.rng.integers(4))
        img = img + self.rng.normal(0, 0.05, img.shape)
        return torch.from_numpy(img[None].astype(np.float32)), int(self.names[i].split("_")[0])


def seed_worker(worker_id):
    info = torch.utils.data.get_worker_info()
    seed = info.seed % 2 ** 32
    random.seed(seed)
    np.random.seed(seed)
    info.dataset.rng = np.random.default_rng(info.seed)


def write_images(root, n=960):
    g = np.random.default_rng(3)
    yy, xx = np.mgrid[:48, :48]
    names = []
    for i in range(n):
        label = i % 4
        ring = np.abs(np.hypot(xx - 24, yy - 24) - 6 - 3 * label) < 2
        img = np.clip(ring * 120 + g.normal(80, 40, (48, 48)), 0, 255).astype(np.uint8)
        names.append(f"{label}_{i:05d}.raw")
        with open(os.path.join(root, names[-1]), "wb") as fh:
            fh.write(img.tobytes())
    return names


def build_net():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, 1, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 4))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        data = Plankton(FlakyMount(root), write_images(root))
        loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=1, multiprocessing_context="spawn",
                            persistent_workers=True, worker_init_fn=seed_worker, prefetch_factor=4)
        net = build_net()
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        for epoch in range(args.epochs):
            begin = t = time.time()
            wait = right = 0.0
            for x, y in loader:
                wait += time.time() - t
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += (out.argmax(1) == y).sum().item()
                t = time.time()
            print(f"epoch {epoch} loss {loss.item():.3f} acc {right / len(data):.3f} {t - begin:.1f}s data {wait:.2f}s", flush=True)


if __name__ == "__main__":
    main()
