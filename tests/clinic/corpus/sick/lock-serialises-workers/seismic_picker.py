# cause: lock-serialises-workers
# also: not-fed-fast-enough
"""Phase picking on seismograms kept in one big container file."""
import argparse
import multiprocessing as mp
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEADER = struct.Struct("<IIf")


class Container:
    """Length-prefixed traces; offsets are found by one scan."""

    def __init__(self, path):
        self.path = path
        self.guard = mp.Lock()
        self.offsets = []
        with open(path, "rb") as f:
            while head := f.read(HEADER.size):
                n, _, _ = HEADER.unpack(head)
                self.offsets.append(f.tell() - HEADER.size)
                f.seek(4 * n, os.SEEK_CUR)

    def read(self, k):
        with self.guard:
            with open(self.path, "rb") as f:
                f.seek(self.offsets[k])
                n, onset, gain = HEADER.unpack(f.read(HEADER.size))
                samples = np.frombuffer(f.read(4 * n), "<f4")
                time.sleep(0.006)               # tape robot
        return samples * gain, onset


class Waveforms(Dataset):
    def __init__(self, container, length):
        self.container, self.length = container, length

    def __len__(self):
        return len(self.container.offsets)

    def __getitem__(self, i):
        x, onset = self.container.read(i)
        shift = int(torch.randint(0, len(x) - self.length, ()))
        x = x[shift:shift + self.length]
        x = (x - x.mean()) / (x.std() + 1e-6)
        y = np.exp(-0.5 * ((np.arange(self.length) - (onset - shift)) / 20.0) ** 2)
        return torch.from_numpy(x.astype(np.float32))[None], torch.from_numpy(y.astype(np.float32))[None]


def write(path, n):
    rng = np.random.default_rng(0)
    with open(path, "wb") as f:
        for _ in range(n):
            size, onset = int(rng.integers(1200, 1600)), int(rng.integers(300, 900))
            x = rng.standard_normal(size).astype("<f4")
            x[onset:onset + 200] *= 6
            f.write(HEADER.pack(size, onset, 0.5) + x.tobytes())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--traces", type=int, default=480)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=4)
    a = p.parse_args()
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv1d(1, 8, 11, padding=5), nn.ReLU(), nn.Conv1d(8, 8, 11, padding=5), nn.ReLU(), nn.Conv1d(8, 1, 1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "traces.bin")
        write(path, a.traces)
        loader = DataLoader(Waveforms(Container(path), 800), 16, shuffle=True, num_workers=a.workers, persistent_workers=True)
        for epoch in range(a.epochs):
            t = time.time()
            for x, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print("epoch %d loss %.4f %.0f traces/s" % (epoch, loss.item(), a.traces / (time.time() - t)), flush=True)


if __name__ == "__main__":
    main()
