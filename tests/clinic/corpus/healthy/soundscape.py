"""Soundscape tagging from one container file; each process opens its own handle."""
import argparse
import fcntl
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES = 6000


def build(path, n):
    """Writers on other hosts may be about: the file is locked while it is built."""
    with open(path, "wb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        rng = np.random.default_rng(2)
        for i in range(n):
            tone = np.sin(np.arange(SAMPLES) * 0.02 * (1 + i % 4)) * 9000
            f.write((tone + rng.normal(0, 800, SAMPLES)).astype("<i2").tobytes())
        fcntl.flock(f, fcntl.LOCK_UN)


class Soundscape(Dataset):
    def __init__(self, path, n):
        self.path, self.n = path, n
        self._handle = None

    def __len__(self):
        return self.n

    @property
    def handle(self):
        if self._handle is None:
            self._handle = open(self.path, "rb", buffering=0)
        return self._handle

    def __getitem__(self, i):
        raw = os.pread(self.handle.fileno(), 2 * SAMPLES, 2 * SAMPLES * i)
        time.sleep(0.002)
        x = np.frombuffer(raw, "<i2").astype(np.float32) / 32768
        frames = x.reshape(-1, 200)
        spec = np.abs(np.fft.rfft(frames * np.hamming(200), axis=1)).astype(np.float32)
        gain = float(torch.empty(()).uniform_(0.7, 1.3))
        return torch.from_numpy(np.log1p(gain * spec)), i % 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(101, 320, batch_first=True)
        self.out = nn.Linear(320, 4)

    def forward(self, x):
        return self.out(self.rnn(x)[0].mean(1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=320)
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "all.pcm")
        build(path, a.clips)
        loader = DataLoader(Soundscape(path, a.clips), 8, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
        model = Tagger()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(a.epochs):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                total += loss.item()
            print("epoch %d loss %.3f" % (epoch, total / len(loader)), flush=True)


if __name__ == "__main__":
    main()
