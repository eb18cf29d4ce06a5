# cause: handle-shared-across-fork
"""Earthquake / quarry-blast discrimination from one packed archive of compressed traces."""
import pathlib
import struct
import tempfile
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

CHANNELS, SAMPLES = 3, 6000


def pack(path, n, seed=23):
    """Archive layout: zlib stream per trace; sidecar .idx holds (offset, size, label)."""
    rng = np.random.default_rng(seed)
    t = np.arange(SAMPLES) / 100.0
    with open(path, "wb") as out, open(path.with_suffix(".idx"), "wb") as idx:
        for _ in range(n):
            label = int(rng.random() < 0.5)
            onset = rng.uniform(5, 25)
            env = np.where(t > onset, np.exp(-(t - onset) / (12 if label else 4)), 0)
            wave = env * np.sin(2 * np.pi * (2.5 if label else 6.0) * t)
            data = (2000 * wave + 120 * rng.standard_normal((CHANNELS, SAMPLES))).astype("<i2")
            blob = zlib.compress(data.tobytes(), 1)
            idx.write(struct.pack("<qii", out.tell(), len(blob), label))
            out.write(blob)


class TraceArchive(Dataset):
    BLOCK = 4096

    def __init__(self, path):
        raw = path.with_suffix(".idx").read_bytes()
        self.index = np.array(list(struct.iter_unpack("<qii", raw)), dtype=np.int64)
        self.fh = open(path, "rb")

    def __len__(self):
        return len(self.index)

    def _inflate(self, offset, size):
        d = zlib.decompressobj()
        parts = []
        self.fh.seek(offset)
        while size > 0:
            block = self.fh.read(min(self.BLOCK, size))
            size -= len(block)
            parts.append(d.decompress(block))
            if not block:
                break
        parts.append(d.flush())
        return b"".join(parts)

    def __getitem__(self, i):
        offset, size, label = (int(v) for v in self.index[i])
        x = np.frombuffer(self._inflate(offset, size), dtype="<i2").reshape(CHANNELS, SAMPLES)
        x = x.astype(np.float32)
        x -= x.mean(axis=1, keepdims=True)
        spec = np.abs(np.fft.rfft(x.reshape(CHANNELS, 60, 100), axis=2))
        return torch.from_numpy(np.log1p(spec).astype(np.float32)), label


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
                                  nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.head = nn.Linear(72, 2)

    def forward(self, x):
        return self.head(self.body(x))


def run(net, loader, opt=None):
    right = 0
    with torch.set_grad_enabled(opt is not None):
        for x, y in loader:
            out = net(x)
            if opt is not None:
                opt.zero_grad()
                nn.functional.cross_entropy(out, y).backward()
                opt.step()
            right += (out.argmax(1) == y).sum().item()
    return right / len(loader.dataset)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "network.arc"
        pack(path, 900)
        data = TraceArchive(path)
        perm = torch.randperm(len(data)).tolist()
        train = DataLoader(Subset(data, perm[120:]), batch_size=16, shuffle=True, num_workers=4,
                           persistent_workers=True)
        val = DataLoader(Subset(data, perm[:120]), batch_size=16, num_workers=2)
        net = Discriminator()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(4):
            a = run(net, train, opt)
            b = run(net, val)
            print(f"epoch {epoch}: train {a:.3f} val {b:.3f}", flush=True)


if __name__ == "__main__":
    main()
