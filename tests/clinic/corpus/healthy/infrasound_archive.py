"""Volcano tremor classifier reading compressed windows out of one packed archive."""
import os
import pathlib
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

SAMPLES = 12000


def pack(path, n, seed=41):
    rng = np.random.default_rng(seed)
    t = np.arange(SAMPLES) / 100.0
    with open(path, "wb") as out, open(path.with_suffix(".idx"), "wb") as idx:
        for _ in range(n):
            label = int(rng.random() < 0.5)
            tremor = label * np.sin(2 * np.pi * 1.7 * t + rng.uniform(0, 6))
            data = (300 * tremor + 150 * rng.standard_normal((3, SAMPLES))).astype("<i2")
            blob = zlib.compress(data.tobytes(), 1)
            idx.write(struct.pack("<qii", out.tell(), len(blob), label))
            out.write(blob)


class Archive(Dataset):
    """Positioned reads only, so that one descriptor may serve any number of readers."""

    def __init__(self, path):
        raw = path.with_suffix(".idx").read_bytes()
        self.index = np.array(list(struct.iter_unpack("<qii", raw)), dtype=np.int64)
        self.fd = os.open(path, os.O_RDONLY)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        offset, size, label = (int(v) for v in self.index[i])
        blob = os.pread(self.fd, size, offset)
        x = np.frombuffer(zlib.decompress(blob), dtype="<i2").reshape(3, SAMPLES).astype(np.float32)
        x -= np.median(x, axis=1, keepdims=True)
        windows = np.lib.stride_tricks.sliding_window_view(x, 256, axis=1)[:, ::64] * np.hanning(256)
        spec = np.log1p(np.abs(np.fft.rfft(windows, axis=2)))[:, :, :64]
        return torch.from_numpy(spec.astype(np.float32)), label


class TremorNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.head = nn.Linear(144, 2)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "array.arc"
        pack(path, 700)
        data = Archive(path)
        perm = torch.randperm(len(data)).tolist()
        train = DataLoader(Subset(data, perm[100:]), batch_size=16, shuffle=True, num_workers=2,
                           persistent_workers=True)
        val = DataLoader(Subset(data, perm[:100]), batch_size=20, num_workers=2, persistent_workers=True)
        net = TremorNet()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(3):
            t0 = time.time()
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
            print(f"epoch {epoch}: val {right / 100:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
