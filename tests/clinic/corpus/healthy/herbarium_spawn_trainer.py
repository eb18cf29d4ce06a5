"""Herbarium sheets, trained under spawn as on the lab's mixed Windows/Linux machines."""
import argparse
import os
import tempfile
import threading
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class GammaCurve:
    def __init__(self, g):
        self.g = g

    def __call__(self, x):
        return x.clamp_min(1e-4) ** self.g


class Pipeline:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


class AccessLog:
    """Line log of sheets that were read; opened on first use, one file per process."""

    def __init__(self, folder):
        self.folder = folder
        self._reset()

    def _reset(self):
        self._lock = threading.Lock()
        self._file = None

    def __getstate__(self):
        return {"folder": self.folder}

    def __setstate__(self, state):
        self.folder = state["folder"]
        self._reset()

    def note(self, text):
        with self._lock:
            if self._file is None:
                self._file = open(os.path.join(self.folder, f"access-{os.getpid()}.log"), "a")
            self._file.write(text + "\n")


class Sheets(Dataset):
    def __init__(self, folder, transform, log):
        self.files = sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".png"))
        self.transform = transform
        self.log = log

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path = self.files[i]
        self.log.note(path)
        with Image.open(path) as im:
            a = np.array(im.convert("RGB").resize((64, 64)), dtype=np.float32)
        x = torch.from_numpy(a).permute(2, 0, 1).contiguous() / 255
        return self.transform(x), int(os.path.basename(path)[0])


def seed_worker(worker_id, base):
    np.random.seed((base + torch.initial_seed()) % 2**32)


def paint(folder, n):
    rng = np.random.default_rng(0)
    for i in range(n):
        k = i % 5
        a = rng.integers(0, 60, (72, 72, 3), dtype=np.uint8)
        a[..., k % 3] += np.uint8(30 * k)
        Image.fromarray(a).save(os.path.join(folder, f"{k}_{i:04d}.png"))


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--context", default="spawn")
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        paint(folder, 400)
        log = AccessLog(folder)
        log.note("run started")
        ds = Sheets(folder, Pipeline([GammaCurve(0.8), GammaCurve(1.1)]), log)
        loader = DataLoader(ds, batch_size=20, shuffle=True, num_workers=1, persistent_workers=True,
                            multiprocessing_context=args.context, worker_init_fn=partial(seed_worker, base=17))
        net = nn.Sequential(conv(3, 32), conv(32, 32), nn.MaxPool2d(2), conv(32, 64), conv(64, 64),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5))
        opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
        for epoch in range(args.epochs):
            correct = 0
            for x, y in loader:
                out = net(x)
                loss = F.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += (out.argmax(1) == y).sum().item()
            sched.step()
            print(f"epoch {epoch} loss {loss.item():.3f} acc {correct / len(ds):.3f}", flush=True)


if __name__ == "__main__":
    main()
