"""Frame classification on a packed feature file."""
import argparse
import os
import struct
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEAD = struct.Struct("<4sII")


class PackedReader:
    def __init__(self, path):
        self.path = path
        self.offsets = np.load(path + ".npy")
        self._stream, self._owner = None, None

    @property
    def stream(self):
        if self._owner != os.getpid():
            self._stream, self._owner = open(self.path, "rb", buffering=0), os.getpid()
        return self._stream

    def read(self, k):
        self.stream.seek(int(self.offsets[k]))
        magic, label, n = HEAD.unpack(self.stream.read(HEAD.size))
        if magic != b"PHN1":
            raise ValueError(f"record {k}: bad magic {magic!r}")
        return label, np.frombuffer(self.stream.read(4 * n), dtype="<f4")


class Frames(Dataset):
    def __init__(self, reader):
        self.reader = reader

    def __len__(self):
        return len(self.reader.offsets)

    def __getitem__(self, i):
        time.sleep(0.002)  # network share
        label, x = self.reader.read(i)
        spec = np.log1p(np.abs(np.fft.rfft(x.reshape(16, 128) * np.hanning(128), axis=1)))
        return torch.from_numpy(spec.astype(np.float32)).flatten(), label


def write(path, n, classes):
    rng = np.random.default_rng(0)
    t = np.arange(2048) / 8000
    offsets = []
    with open(path, "wb") as f:
        for i in range(n):
            c = i % classes
            offsets.append(f.tell())
            x = np.sin(2 * np.pi * (200 + 90 * c) * t) + 0.2 * rng.normal(size=t.size)
            f.write(HEAD.pack(b"PHN1", c, t.size) + x.astype("<f4").tobytes())
    np.save(path, np.array(offsets))


class Net(nn.Module):
    def __init__(self, classes, width=1400):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16 * 65, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x):
        return self.net(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--records", type=int, default=320)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "frames.bin")
        write(path, a.records, 12)
        loader = DataLoader(Frames(PackedReader(path)), 16, shuffle=True, num_workers=a.workers, persistent_workers=True)
        net = Net(12)
        opt = torch.optim.Adam(net.parameters(), lr=3e-4)
        for epoch in range(a.epochs):
            start, waited, mark = time.time(), 0.0, time.time()
            for x, y in loader:
                waited += time.time() - mark
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                mark = time.time()
            print(f"epoch {epoch} loss {loss.item():.3f} time {time.time() - start:.2f}s waited {waited:.2f}s", flush=True)


if __name__ == "__main__":
    main()
