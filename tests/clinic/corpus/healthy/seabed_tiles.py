"""Seabed habitat segmentation from sonar swaths; windows of one swath are visited together."""
import argparse
import atexit
import collections
import os
import shutil
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SIDE = 512


def survey(folder, swaths):
    rng = np.random.default_rng(2)
    paths = []
    for s in range(swaths):
        floor = np.cumsum(rng.integers(-1, 2, (SIDE, SIDE)), axis=1).astype(np.int16)
        path = os.path.join(folder, f"swath{s:03d}.z")
        with open(path, "wb") as f:
            f.write(zlib.compress(floor.tobytes(), 1))
        paths.append(path)
    return paths


class RecentSwaths:
    """Keeps the last few decoded swaths."""

    def __init__(self, keep):
        self.keep = keep
        self.items = collections.OrderedDict()

    def __getitem__(self, path):
        if path in self.items:
            self.items.move_to_end(path)
        else:
            with open(path, "rb") as f:
                floor = np.frombuffer(zlib.decompress(f.read()), dtype=np.int16).reshape(SIDE, SIDE)
            self.items[path] = floor.astype(np.float32) / 50
            while len(self.items) > self.keep:
                self.items.popitem(last=False)
        return self.items[path]


class Windows(Dataset):
    def __init__(self, paths, per_swath, crop):
        self.paths, self.per_swath, self.crop = paths, per_swath, crop
        self.recent = RecentSwaths(keep=4)

    def __len__(self):
        return len(self.paths) * self.per_swath

    def __getitem__(self, i):
        floor = self.recent[self.paths[i // self.per_swath]]
        y, x = torch.randint(0, SIDE - self.crop, (2,)).tolist()
        window = floor[y:y + self.crop, x:x + self.crop]
        rough = np.stack([np.abs(np.roll(window, k, a) - window) for k in (1, 2, 3, 4, 6, 8, 12, 16) for a in (0, 1)])
        label = (rough.mean(0) > 0.03).astype(np.int64)
        level = np.sort(rough, axis=0)[7:9]
        return torch.from_numpy(np.concatenate([window[None], level])), torch.from_numpy(label)


class SwathOrder(Sampler):
    """Swaths in random order, the windows of a swath one after the other."""

    def __init__(self, swaths, per_swath):
        self.swaths, self.per_swath = swaths, per_swath

    def __len__(self):
        return self.swaths * self.per_swath

    def __iter__(self):
        for s in torch.randperm(self.swaths).tolist():
            yield from range(s * self.per_swath, (s + 1) * self.per_swath)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--swaths", type=int, default=32)
    p.add_argument("--windows", type=int, default=16)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--device-ms", type=float, default=55)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="seabed")
    atexit.register(shutil.rmtree, folder, True)
    data = Windows(survey(folder, args.swaths), args.windows, 96)
    loader = DataLoader(data, 16, sampler=SwathOrder(args.swaths, args.windows), num_workers=2, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 2, 1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        began, total = time.time(), 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(args.device_ms / 1000)
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
