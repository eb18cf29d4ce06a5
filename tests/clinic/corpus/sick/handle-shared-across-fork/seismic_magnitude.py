# cause: handle-shared-across-fork
"""Magnitude regression from three-component seismograms kept in one flat volume file.

Volume layout: N traces of fixed size (header of 32 bytes, then 3 x 600 int16 counts), then the
instrument response tables, one for each station.
"""
import argparse
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

HEADER = struct.Struct("<IIdd8x")
NPTS = 600
PAYLOAD = 3 * NPTS * 2
RECORD = HEADER.size + PAYLOAD
STATIONS = 16


def write_volume(path, n, seed=0):
    rng = np.random.default_rng(seed)
    magnitude = rng.uniform(1.0, 5.0, n).astype(np.float32)
    t = np.arange(NPTS) / 100
    with open(path, "wb") as f:
        for i in range(n):
            onset = rng.uniform(0.5, 2.0)
            env = np.where(t > onset, np.exp(-(t - onset) / (0.2 + 0.2 * magnitude[i])), 0)
            amp = 40 * 10 ** (0.4 * magnitude[i])
            wave = amp * env * np.sin(2 * np.pi * (9 - magnitude[i]) * t) + rng.normal(0, 30, (3, NPTS))
            f.write(HEADER.pack(i, i % STATIONS, onset, 100.0))
            f.write(wave.clip(-32000, 32000).astype("<i2").tobytes())
        for _ in range(STATIONS):
            f.write(rng.integers(-3000, 3000, 4096).astype("<i2").tobytes())
    return magnitude


def detrend(counts, span=151):
    counts = counts.astype(np.float32)
    return counts - np.convolve(counts, np.full(span, 1 / span, np.float32), mode="same")


class Volume:
    """Random access to the traces of a volume."""

    def __init__(self, path):
        self.path = path
        self._stream = open(path, "rb", buffering=0)

    def trace(self, number):
        self._stream.seek(number * RECORD)
        head = self._stream.read(HEADER.size)
        _, station, onset, _ = HEADER.unpack(head)
        out = np.empty((3, NPTS), np.float32)
        for component in out:
            counts = np.frombuffer(self._stream.read(NPTS * 2), dtype="<i2")
            component[:] = detrend(counts)
        return station, out


class Standardise:
    def __call__(self, x):
        x = np.asarray(x, dtype=np.float32)
        return np.arcsinh((x - x.mean(1, keepdims=True)) / 50.0)


class Spectrogram:
    def __init__(self, window=64, hop=8):
        self.window, self.hop = window, hop
        self.taper = np.hanning(window).astype(np.float32)

    def __call__(self, x):
        frames = np.lib.stride_tricks.sliding_window_view(x, self.window, axis=1)[:, ::self.hop]
        return np.log1p(np.abs(np.fft.rfft(frames * self.taper, n=256, axis=-1)))[..., :64].astype(np.float32)


class Seismograms(Dataset):
    def __init__(self, volume, magnitude, steps):
        self.volume, self.magnitude, self.steps = volume, magnitude, steps

    def __len__(self):
        return len(self.magnitude)

    def __getitem__(self, i):
        _, x = self.volume.trace(int(i))
        for step in self.steps:
            x = step(x)
        return torch.from_numpy(x), torch.tensor(self.magnitude[i])


def build_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten(), nn.Linear(256, 1), nn.Flatten(0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=2400)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="seis-") as folder:
        path = os.path.join(folder, "events.vol")
        magnitude = write_volume(path, args.traces)
        data = Seismograms(Volume(path), magnitude, [Standardise(), Spectrogram()])
        order = np.random.default_rng(1).permutation(args.traces)
        cut = args.traces * 9 // 10
        keep = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=args.workers > 0)
        train = DataLoader(Subset(data, order[:cut]), shuffle=True, **keep)
        val = DataLoader(Subset(data, order[cut:]), **keep)

        torch.manual_seed(0)
        net = build_net()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(args.epochs):
            t0, total = time.time(), 0.0
            net.train()
            for x, y in train:
                loss = nn.functional.smooth_l1_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            net.eval()
            with torch.no_grad():
                mae = torch.cat([(net(x) - y).abs() for x, y in val]).mean().item()
            print(f"epoch {epoch + 1}/{args.epochs} loss {total / len(train):.4f} val MAE {mae:.3f} "
                  f"{args.traces / (time.time() - t0):.0f} traces/s", flush=True)


if __name__ == "__main__":
    main()
