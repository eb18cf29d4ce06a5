"""Anomaly scores for rover telemetry: fixed-size binary frames, autoencoder on windows of frames, spawned workers."""
import argparse
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class FrameLayout:
    def __init__(self, channels):
        self.channels = channels
        self.packer = struct.Struct(f"<IHB{channels}f")

    def __getstate__(self):
        return self.channels

    def __setstate__(self, channels):
        self.__init__(channels)

    @property
    def size(self):
        return self.packer.size

    def encode(self, tick, mode, values):
        return self.packer.pack(tick, mode, len(values), *values)

    def decode(self, buf):
        _, mode, n, *values = self.packer.unpack(buf)
        return mode, values[:n]


class Windows(Dataset):
    def __init__(self, path, layout, length, stride):
        self.path, self.layout, self.length, self.stride = path, layout, length, stride
        self.frames = os.path.getsize(path) // layout.size

    def __len__(self):
        return (self.frames - self.length) // self.stride + 1

    def __getitem__(self, k):
        size = self.layout.size
        with open(self.path, "rb") as f:
            f.seek(k * self.stride * size)
            blob = f.read(self.length * size)
        frames = [self.layout.decode(blob[j * size:(j + 1) * size]) for j in range(self.length)]
        x = np.asarray([v for _, v in frames], dtype=np.float32)
        x = (x - x.mean(0)) / (x.std(0) + 1e-3)
        lagged = [np.corrcoef(x[lag:].T, x[:len(x) - lag].T)[:x.shape[1], x.shape[1]:].ravel() for lag in range(1, 9)]
        return torch.from_numpy(np.concatenate([x[::4].ravel()] + lagged).astype(np.float32)), int(frames[0][0])


def simulate(path, layout, n, seed=9):
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6, layout.channels)
    with open(path, "wb") as f:
        for t in range(n):
            mode = (t // 500) % 4
            vals = np.sin(t * 0.02 * (1 + mode) + phase) * 40 + rng.normal(0, 1, layout.channels)
            f.write(layout.encode(t, mode, vals.tolist()))


class AutoEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 12))
        self.dec = nn.Sequential(nn.ReLU(), nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x):
        return self.dec(self.enc(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--channels", type=int, default=16)
    ap.add_argument("--length", type=int, default=192)
    ap.add_argument("--epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="rover_") as folder:
        layout = FrameLayout(args.channels)
        path = os.path.join(folder, "sol_0417.bin")
        simulate(path, layout, 5000)
        windows = Windows(path, layout, args.length, 8)
        cut = int(len(windows) * 0.9)
        train = DataLoader(Subset(windows, range(cut)), batch_size=20, shuffle=True, num_workers=2, persistent_workers=True,
                           multiprocessing_context="spawn")
        held = DataLoader(Subset(windows, range(cut, len(windows))), batch_size=64)
        net = AutoEncoder(len(windows[0][0]))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            for x, _ in train:
                loss = nn.functional.mse_loss(net(x), x)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.04)    # stands for the accelerator
            with torch.no_grad():
                score = np.mean([nn.functional.mse_loss(net(x), x).item() for x, _ in held])
            print(f"epoch {epoch} train {loss.item():.4f} held out {score:.4f}", flush=True)


if __name__ == "__main__":
    main()
