# cause: unpicklable-dataset
"""Anomaly scores for satellite telemetry: fixed-size binary frames, autoencoder on windows of frames."""
import argparse
import os
import struct
import tempfile

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class FrameLayout:
    """Header, channel values, checksum."""

    def __init__(self, channels):
        self.channels = channels
        self.packer = struct.Struct(f"<IHB{channels}fH")

    @property
    def size(self):
        return self.packer.size

    def encode(self, tick, mode, values):
        return self.packer.pack(tick, mode, len(values), *values, sum(map(abs, map(int, values))) & 0xFFFF)

    def decode(self, buf):
        tick, mode, n, *rest = self.packer.unpack(buf)
        values = rest[:n]
        if sum(map(abs, map(int, values))) & 0xFFFF != rest[-1]:
            raise ValueError(f"checksum of frame {tick}")
        return mode, values


class Recording:
    def __init__(self, path, layout):
        self.path, self.layout = path, layout
        self.frames = os.path.getsize(path) // layout.size

    def read(self, start, count):
        size = self.layout.size
        with open(self.path, "rb") as f:
            f.seek(start * size)
            blob = f.read(count * size)
        return [self.layout.decode(blob[k * size:(k + 1) * size]) for k in range(count)]


class Windows(Dataset):
    def __init__(self, recording, length, stride):
        self.recording, self.length, self.stride = recording, length, stride

    def __len__(self):
        return (self.recording.frames - self.length) // self.stride + 1

    def __getitem__(self, k):
        frames = self.recording.read(k * self.stride, self.length)
        x = np.asarray([v for _, v in frames], dtype=np.float32)
        mode = np.bincount([m for m, _ in frames], minlength=4).argmax()
        x = (x - x.mean(0)) / (x.std(0) + 1e-3)
        spectrum = np.abs(np.fft.rfft(x, axis=0))[:16]
        return torch.from_numpy(np.concatenate([x.ravel(), spectrum.ravel().astype(np.float32)])), int(mode)


def simulate(path, layout, n, seed=9):
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 6, layout.channels)
    with open(path, "wb") as f:
        for t in range(n):
            mode = (t // 500) % 4
            vals = np.sin(t * 0.02 * (1 + mode) + phase) * 40 + rng.normal(0, 1, layout.channels)
            f.write(layout.encode(t, mode, np.float32(vals).tolist()))


class AutoEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 12))
        self.dec = nn.Sequential(nn.ReLU(), nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, width))

    def forward(self, x):
        return self.dec(self.enc(x))


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--channels", type=int, default=24)
    ap.add_argument("--length", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--start-method", default="forkserver")
    return ap.parse_args()


def main():
    args = parse()
    mp.set_start_method(args.start_method)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="telemetry_") as folder:
        layout = FrameLayout(args.channels)
        path = os.path.join(folder, "pass_0417.bin")
        simulate(path, layout, 4000)
        windows = Windows(Recording(path, layout), args.length, 8)
        cut = int(len(windows) * 0.85)
        train = DataLoader(Subset(windows, range(cut)), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
        held = DataLoader(Subset(windows, range(cut, len(windows))), batch_size=64)
        net = AutoEncoder(len(windows[0][0]))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            for x, _ in train:
                loss = nn.functional.mse_loss(net(x), x)
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                score = np.mean([nn.functional.mse_loss(net(x), x).item() for x, _ in held])
            print(f"epoch {epoch} train {loss.item():.4f} held out {score:.4f}", flush=True)


if __name__ == "__main__":
    main()
