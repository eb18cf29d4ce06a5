# cause: per-worker-cache
"""Stain classification on slide regions, decoded from packed level files."""
import argparse
import collections
import shutil
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

LEVEL = 640


class TensorStore(collections.OrderedDict):
    """Keeps recently used arrays, oldest out first, within a budget in bytes."""

    def __init__(self, budget):
        super().__init__()
        self.budget = budget
        self.held = 0

    def fetch(self, key, make):
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = make(key)
        self[key] = value
        self.held += sys.getsizeof(value)
        while self.held > self.budget:
            _, old = self.popitem(last=False)
            self.held -= sys.getsizeof(old)
        return value


def write_slides(root, slides, levels):
    rng = np.random.default_rng(0)
    for s in range(slides):
        folder = root / f"slide{s}"
        folder.mkdir()
        for k in range(levels):
            coarse = rng.integers(0, 60 + 60 * (s % 3), (3, LEVEL // 16, LEVEL // 16), dtype=np.uint8)
            (folder / f"level{k}.z").write_bytes(zlib.compress(coarse.repeat(16, 1).repeat(16, 2).tobytes(), 1))


def decode(path):
    raw = np.frombuffer(zlib.decompress(Path(path).read_bytes()), np.uint8).reshape(3, LEVEL, LEVEL)
    return torch.from_numpy(raw.astype(np.float32) / 255)


class Slide(Dataset):
    def __init__(self, folder, store, per_level, label):
        self.files = sorted(str(f) for f in folder.glob("*.z"))
        self.store, self.per_level, self.label = store, per_level, label

    def __len__(self):
        return len(self.files) * self.per_level

    def __getitem__(self, i):
        level = self.store.fetch(self.files[i % len(self.files)], decode)
        y, x = torch.randint(0, LEVEL - 48, (2,)).tolist()
        patch = level[:, y:y + 48, x:x + 48].clone()
        return patch.add_(torch.randn(3, 1, 1) * 0.02), self.label


class Meter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def add(self, v):
        self.total, self.n = self.total + v, self.n + 1

    @property
    def mean(self):
        return self.total / max(1, self.n)


def main(a):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp())
    try:
        write_slides(root, a.slides, a.levels)
        store = TensorStore(budget=a.budget_mb << 20)
        data = ConcatDataset(Slide(root / f"slide{s}", store, 12, s % 3) for s in range(a.slides))
        loader = DataLoader(data, 8, shuffle=True, num_workers=a.workers, persistent_workers=True)
        net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 3))
        opt = torch.optim.AdamW(net.parameters(), 3e-3)
        for epoch in range(a.epochs):
            meter, began = Meter(), time.time()
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                meter.add(loss.item())
                time.sleep(0.015)  # rest of the step runs elsewhere
            print(f"epoch {epoch} loss {meter.mean:.3f} {time.time() - began:.1f}s", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--slides", type=int, default=10)
    parser.add_argument("--levels", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--budget-mb", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=2)
    main(parser.parse_args())
