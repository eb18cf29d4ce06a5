# cause: lock-held-at-fork
"""Rock type from drill images.  While an epoch runs the label store is frozen, between epochs reviewers may edit it."""
import argparse
import contextlib
import os
import tempfile
import threading

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class LabelStore:
    def __init__(self):
        self._labels = {}
        self._guard = threading.Lock()
        self.revision = 0

    def put(self, name, label):
        with self._guard:
            self._labels[name] = label
            self.revision += 1

    def get(self, name):
        with self._guard:
            return self._labels[name]

    def names(self):
        with self._guard:
            return sorted(self._labels)

    @contextlib.contextmanager
    def frozen(self):
        """No edits while the block runs."""
        self._guard.acquire()
        try:
            yield self.revision
        finally:
            self._guard.release()


class Reviewer:
    """Applies corrections that came in since the last look."""

    def __init__(self, store, rate, rng):
        self.store, self.rate, self.rng = store, rate, rng

    def __call__(self):
        for name in self.store.names():
            if self.rng.random() < self.rate:
                self.store.put(name, self.store.get(name))


class Cores(Dataset):
    def __init__(self, folder, store):
        self.folder, self.store = folder, store
        self.index = store.names()

    def __len__(self):
        return len(self.index)

    def features(self, name):
        with Image.open(os.path.join(self.folder, name)) as im:
            big = im.convert("L").resize((192, 192), Image.BICUBIC)
        a = np.asarray(big, dtype=np.float32) / 255.0
        spectrum = np.log1p(np.abs(np.fft.fftshift(np.fft.fft2(a))))
        return np.stack([a[::4, ::4], spectrum[::4, ::4].astype(np.float32)])

    def __getitem__(self, k):
        name = self.index[k]
        return torch.from_numpy(self.features(name)), self.store.get(name)


def drill(folder, store, n, rng):
    for k in range(n):
        kind = int(rng.integers(3))
        grid = rng.normal(0, 1, (8 << kind, 8 << kind))
        im = Image.fromarray(((grid - grid.min()) / np.ptp(grid) * 255).astype(np.uint8)).resize((128, 128))
        name = f"core_{k:04d}.png"
        im.save(os.path.join(folder, name))
        store.put(name, kind)


class Trainer:
    def __init__(self, net, lr):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)

    def epoch(self, loader):
        hits = n = 0
        for x, y in loader:
            logits = self.net(x)
            loss = nn.functional.cross_entropy(logits, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            hits += (logits.argmax(1) == y).sum().item()
            n += len(y)
        return hits / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--cores", type=int, default=240)
    args = ap.parse_args()
    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="quarry_") as folder:
        store = LabelStore()
        drill(folder, store, args.cores, rng)
        review = Reviewer(store, 0.05, rng)
        loader = DataLoader(Cores(folder, store), batch_size=16, shuffle=True, num_workers=2)
        net = nn.Sequential(nn.Conv2d(2, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
                            nn.Flatten(), nn.Linear(64, 3))
        trainer = Trainer(net, 0.05)
        for epoch in range(args.epochs):
            with store.frozen() as revision:
                accuracy = trainer.epoch(loader)
            print(f"epoch {epoch} labels r{revision} accuracy {accuracy:.3f}", flush=True)
            review()


if __name__ == "__main__":
    main()
