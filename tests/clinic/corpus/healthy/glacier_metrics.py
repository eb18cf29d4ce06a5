"""Glacier front segmentation with a background metrics writer. The counter object is shared by threads of the main process only;
a fresh lock is made in every child."""
import json
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Metrics:
    def __init__(self, path, every=0.3):
        self.path, self.every = path, every
        self.values = {}
        self.lock = threading.Lock()
        self.done = threading.Event()
        os.register_at_fork(after_in_child=self._fresh)
        self.thread = threading.Thread(target=self._writer, daemon=True)
        self.thread.start()

    def _fresh(self):
        self.lock, self.values = threading.Lock(), {}

    def add(self, name, amount=1.0):
        with self.lock:
            self.values[name] = self.values.get(name, 0.0) + amount

    def _writer(self):
        while not self.done.wait(self.every):
            with self.lock:
                with open(self.path, "a") as f:
                    f.write(json.dumps({"t": time.time(), **self.values}) + "\n")
                    f.flush()
                    os.fsync(f.fileno())

    def close(self):
        self.done.set()
        self.thread.join()


class Fronts(Dataset):
    def __init__(self, n, metrics, seed):
        self.n, self.metrics, self.seed = n, metrics, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        u, v = np.mgrid[0:160, 0:160]
        front = 60 + 30 * np.sin(v / 25 + rng.uniform(0, 6))
        mask = (u > front).astype(np.float32)
        img = mask * 0.6 + 0.25 * rng.standard_normal(mask.shape)
        for _ in range(8):                         # speckle filter
            img = (img + np.roll(img, 1, 0) + np.roll(img, -1, 0) + np.roll(img, 1, 1) + np.roll(img, -1, 1)) / 5
        self.metrics.add("scenes")
        return torch.from_numpy(img[None, ::2, ::2].astype(np.float32)), torch.from_numpy(mask[None, ::2, ::2].copy())


def train(loader, val, metrics, epochs=4):
    net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 5, padding=2))
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    for epoch in range(epochs):
        for x, m in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), m)
            opt.zero_grad(); loss.backward(); opt.step()
            metrics.add("steps")
        with torch.no_grad():
            iou = np.mean([(((net(x) > 0) & (m > 0)).sum() / ((net(x) > 0) | (m > 0)).sum()).item() for x, m in val])
        print(f"epoch {epoch}: loss {loss.item():.3f} IoU {iou:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as d:
        metrics = Metrics(os.path.join(d, "metrics.jsonl"))
        opts = dict(num_workers=2, persistent_workers=True)
        train(DataLoader(Fronts(480, metrics, 1), 16, shuffle=True, **opts), DataLoader(Fronts(64, metrics, 2), 16, **opts), metrics)
        metrics.close()
