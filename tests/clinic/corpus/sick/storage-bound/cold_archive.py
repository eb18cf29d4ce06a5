# cause: storage-bound
# also: not-fed-fast-enough
"""Document embedding from a cold archive with a fixed read bandwidth."""
import argparse
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Volume:
    """Block device whose head delivers `rate` bytes per second, whoever asks."""

    def __init__(self, path, rate):
        self.path, self.rate = path, rate
        self.free_at = mp.Value("d", 0.0)

    def pread(self, offset, size):
        fd = os.open(self.path, os.O_RDONLY)
        try:
            data = os.pread(fd, size, offset)
        finally:
            os.close(fd)
        with self.free_at.get_lock():
            begin = max(time.monotonic(), self.free_at.value)
            self.free_at.value = done = begin + len(data) / self.rate
        time.sleep(max(0.0, done - time.monotonic()))
        return data


class Documents(Dataset):
    def __init__(self, volume, count, size):
        self.volume, self.count, self.size = volume, count, size

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        raw = np.frombuffer(self.volume.pread(i * self.size, self.size), np.uint8)
        hist = np.bincount(raw, minlength=256).astype(np.float32) / len(raw)
        return torch.from_numpy(hist), int(raw[0]) % 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, x):
        return self.net(x)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--documents", type=int, default=300)
    p.add_argument("--size", type=int, default=60000)
    p.add_argument("--rate", type=float, default=3e6)
    p.add_argument("--workers", type=int, default=4)
    a = p.parse_args()
    torch.set_num_threads(1)
    model = Classifier()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as root:
        path = os.path.join(root, "archive.bin")
        np.random.default_rng(0).integers(0, 255, a.documents * a.size, dtype=np.uint8).tofile(path)
        loader = DataLoader(Documents(Volume(path, a.rate), a.documents, a.size), 10, shuffle=True, num_workers=a.workers)
        t = time.time()
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 6 == 5:
                print("step %d loss %.3f %.2f MB/s" % (step + 1, loss.item(), 10 * (step + 1) * a.size / (time.time() - t) / 1e6), flush=True)


if __name__ == "__main__":
    main()
