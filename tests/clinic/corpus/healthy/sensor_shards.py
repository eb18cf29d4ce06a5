"""Sensor fault model on compressed shards; reading is split between the workers record by record."""
import json
import os
import tempfile
import zlib
from itertools import islice

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, ROWS = 5, 500


def write(root):
    rng = np.random.default_rng(0)
    for s in range(SHARDS):
        rows = [zlib.compress(json.dumps({"v": np.round(rng.standard_normal(700), 4).tolist(), "y": int(rng.integers(0, 3))}).encode())
                for _ in range(ROWS)]
        with open(os.path.join(root, f"shard{s}.bin"), "wb") as f:
            for r in rows:
                f.write(len(r).to_bytes(4, "little") + r)


class Shards(IterableDataset):
    """Odd number of shards, any number of workers: each takes every k-th record of the whole stream."""

    def __init__(self, root, first, last):
        super().__init__()
        self.paths = [os.path.join(root, f"shard{s}.bin") for s in range(first, last)]

    def __len__(self):
        return len(self.paths) * ROWS

    def raw(self):
        for p in self.paths:
            with open(p, "rb") as f:
                while head := f.read(4):
                    yield f.read(int.from_bytes(head, "little"))

    def decode(self, blob):
        row = json.loads(zlib.decompress(blob))
        v = np.array(row["v"], dtype=np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(v, 64)[::4]
        for _ in range(3):
            frames = np.abs(np.fft.ifft(np.fft.fft(frames * np.hanning(64), axis=1), axis=1))
        return torch.from_numpy(np.log1p(frames).astype(np.float32).T.copy()), row["y"]

    def __iter__(self):
        info = get_worker_info()
        k, n = (0, 1) if info is None else (info.id, info.num_workers)
        for blob in islice(self.raw(), k, None, n):
            yield self.decode(blob)


def shuffled(loader, size, seed):
    """Shuffle buffer over batches."""
    rng = np.random.default_rng(seed)
    buf = []
    for item in loader:
        buf.append(item)
        if len(buf) == size:
            yield buf.pop(int(rng.integers(size)))
    rng.shuffle(buf)
    yield from buf


class FaultNet(nn.Module):
    def __init__(self, width=176):
        super().__init__()
        self.f = nn.Sequential(nn.Conv1d(64, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2), nn.ReLU(),
                               nn.Conv1d(width, width, 5, padding=2), nn.ReLU())
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.f(x).mean(-1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        write(root)
        train, val = (DataLoader(Shards(root, a, b), batch_size=25, num_workers=2, persistent_workers=True)
                      for a, b in ((0, SHARDS - 1), (SHARDS - 1, SHARDS)))
        model = FaultNet()
        opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        lossf = nn.CrossEntropyLoss()
        for epoch in range(3):
            rows, tot, k = 0, 0.0, 0
            for x, y in shuffled(train, 6, epoch):
                loss = lossf(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                rows, tot, k = rows + len(y), tot + loss.item(), k + 1
            assert rows == len(train.dataset), rows
            with torch.no_grad():
                v = np.mean([lossf(model(x), y).item() for x, y in val])
            print(f"epoch {epoch} rows {rows} train {tot / k:.4f} val {v:.4f}", flush=True)
        del train, val


if __name__ == "__main__":
    main()
