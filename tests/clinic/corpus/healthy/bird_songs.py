"""Bird song classifier with a small bounded cache of decoded recordings."""
import argparse
import functools
import os
import tempfile
import time
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000


def record(root, n):
    rng = np.random.default_rng(0)
    t = np.arange(4 * RATE) / RATE
    for k in range(n):
        x = 0.4 * np.sin(2 * np.pi * (300 + 150 * (k % 6)) * t) + 0.05 * rng.standard_normal(len(t))
        with wave.open(os.path.join(root, "%03d_%d.wav" % (k, k % 6)), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes((x * 32000).astype("<i2").tobytes())


@functools.lru_cache(maxsize=8)
def decode(path):
    with wave.open(path) as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768


class Songs(Dataset):
    def __init__(self, root, clip):
        self.paths = [os.path.join(root, n) for n in sorted(os.listdir(root))]
        self.clip = clip

    def __len__(self):
        return len(self.paths) * 4

    def __getitem__(self, i):
        path = self.paths[i // 4]
        x = decode(path)
        time.sleep(0.002)                       # disk
        start = int(torch.randint(0, len(x) - self.clip, ()))
        frames = np.lib.stride_tricks.sliding_window_view(x[start:start + self.clip], 256)[::128]
        spec = np.log1p(np.abs(np.fft.rfft(frames * np.hanning(256), axis=1)))
        return torch.from_numpy(spec.astype(np.float32)), int(path[-5])


class Net(nn.Module):
    def __init__(self, width=1408):
        super().__init__()
        self.inp = nn.Linear(129, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 6)

    def forward(self, x):
        h = torch.relu(self.inp(x)).mean(1)
        return self.out(torch.relu(self.mid(h)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--recordings", type=int, default=66)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(1)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
    with tempfile.TemporaryDirectory() as root:
        record(root, a.recordings)
        loader = DataLoader(Songs(root, RATE), batch_size=6, shuffle=True, num_workers=a.workers, persistent_workers=True)
        for epoch in range(a.epochs):
            good = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                good += int((out.argmax(1) == y).sum())
            print("epoch %d accuracy %.2f" % (epoch, good / len(loader.dataset)), flush=True)


if __name__ == "__main__":
    main()
