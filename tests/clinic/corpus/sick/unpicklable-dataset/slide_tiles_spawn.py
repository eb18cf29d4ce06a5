# cause: unpicklable-dataset
"""Tile classifier over a handful of large scans with a bounded in-process tile cache."""
import os
import tempfile
import threading
from collections import OrderedDict

import numpy as np
import torch
import torch.multiprocessing as mp
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class LRU:
    def __init__(self, capacity):
        self.capacity = capacity
        self.hits = self.misses = 0
        self._items = OrderedDict()
        self._guard = threading.RLock()

    def get(self, key, load):
        with self._guard:
            if key in self._items:
                self.hits += 1
                self._items.move_to_end(key)
                return self._items[key]
            self.misses += 1
            value = self._items[key] = load()
            while len(self._items) > self.capacity:
                self._items.popitem(last=False)
            return value


class ScanReader:
    def __init__(self, root, cache_size=3):
        self.paths = sorted(os.path.join(root, f) for f in os.listdir(root) if f.endswith(".png"))
        self.cache = LRU(cache_size)

    def _decode(self, path):
        with Image.open(path) as im:
            return np.asarray(im.convert("RGB"))

    def region(self, scan, row, col, size):
        full = self.cache.get(scan, lambda: self._decode(self.paths[scan]))
        return full[row:row + size, col:col + size]


class TileDataset(Dataset):
    def __init__(self, root, size=48, train=True):
        self.reader = ScanReader(root)
        self.size, self.train = size, train
        self.index = []
        for s, path in enumerate(self.reader.paths):
            w, h = Image.open(path).size
            self.index += [(s, r, c) for r in range(0, h - size + 1, size) for c in range(0, w - size + 1, size)]

    def labels(self):
        return [(r // self.size + c // self.size) % 4 == 0 for _, r, c in self.index]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        s, r, c = self.index[i]
        tile = self.reader.region(s, r, c, self.size)
        x = torch.from_numpy(tile.copy()).permute(2, 0, 1).float() / 255
        if self.train and torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x, int((r // self.size + c // self.size) % 4 == 0)


def write_scans(root, count=4, side=768):
    rng = np.random.default_rng(3)
    for k in range(count):
        base = rng.integers(0, 255, size=(side // 48, side // 48, 3), dtype=np.uint8)
        img = Image.fromarray(base).resize((side, side), Image.NEAREST)
        img.save(os.path.join(root, f"scan_{k:02d}.png"))


def build(root):
    ds = TileDataset(root)
    y = np.array(ds.labels())
    weights = np.where(y, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    sampler = WeightedRandomSampler(torch.as_tensor(weights), num_samples=len(ds), replacement=True)
    return DataLoader(ds, batch_size=32, sampler=sampler, num_workers=2, persistent_workers=True)


def main():
    # the training box has a GPU, which wants spawned workers
    mp.set_start_method("spawn")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as root:
        write_scans(root)
        loader = build(root)
        net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                            nn.Linear(128, 2))
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for epoch in range(3):
            correct = seen = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += (out.argmax(1) == y).sum().item()
                seen += len(y)
            print(f"epoch {epoch}: acc {correct / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
