# limits: memory=1500M
"""Variant calling pile-ups from one flat record file: positional reads, very deep sites are thinned before they are expanded."""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, CAP = 101, 400


class Pileups(Dataset):
    def __init__(self, path, table):
        self.fd = os.open(path, os.O_RDONLY)
        self.table = table                                   # int64 array: offset, depth, label

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        offset, depth, label = (int(v) for v in self.table[i])
        reads = min(depth, 4000)
        raw = os.pread(self.fd, reads * WIDTH, offset)
        bases = np.frombuffer(raw, np.uint8).reshape(reads, WIDTH)
        if reads > CAP:
            bases = bases[np.linspace(0, reads - 1, CAP).astype(int)]
        onehot = np.eye(5, dtype=np.float32)[bases]           # reads x width x 5
        order = np.argsort((bases != np.median(bases, 0)).sum(1), kind="stable")
        onehot = onehot[order]
        lo, hi = np.quantile(onehot, (0.1, 0.9), axis=0)
        feats = np.concatenate([onehot.mean(0), onehot.std(0), (hi - lo).astype(np.float32)], 1)
        return torch.from_numpy(feats.T.astype(np.float32)), label


def sequence(path, sites):
    rng = np.random.default_rng(12)
    rows = []
    with open(path, "wb") as f:
        for s in range(sites):
            depth = 60000 if s == 201 else int(rng.integers(80, 260))
            label = int(rng.integers(0, 2))
            ref = rng.integers(0, 4, WIDTH, dtype=np.uint8)
            b = np.tile(ref, (depth, 1))
            b[rng.random(b.shape) < 0.02] = 4
            if label:
                b[: depth // 2, WIDTH // 2] = (ref[WIDTH // 2] + 1) % 4
            rows.append((f.tell(), depth, label))
            f.write(b.tobytes())
    return np.array(rows, np.int64)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sites", type=int, default=480)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=4)
    a = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "pile.bin")
        table = sequence(path, a.sites)
        data = Pileups(path, table)
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
        net = nn.Sequential(nn.Conv1d(15, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 8, 5), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
        net(torch.zeros(1, 15, WIDTH))
        opt = torch.optim.Adam(net.parameters(), 2e-3)
        for epoch in range(a.epochs):
            right = 0
            for x, y in loader:
                out = net(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad(); loss.backward(); opt.step()
                right += int((out.argmax(1) == y).sum())
            print(f"epoch {epoch}: {right}/{len(data)}", flush=True)


if __name__ == "__main__":
    main()
