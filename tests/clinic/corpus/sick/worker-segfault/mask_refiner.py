# cause: worker-segfault
"""Mask refinement. Masks are run-length coded and unpacked straight into the target buffer."""
import ctypes
import os
import pickle
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 64


class RunCoder:
    """Fast path for (value, count) runs through libc."""

    def __init__(self):
        self._libc = None

    @property
    def libc(self):
        if self._libc is None:
            self._libc = ctypes.CDLL(None)
            self._libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
            self._libc.memset.restype = ctypes.c_void_p
        return self._libc

    @staticmethod
    def encode(mask):
        flat = mask.ravel()
        cuts = np.flatnonzero(np.diff(flat)) + 1
        bounds = np.concatenate([[0], cuts, [flat.size]])
        return [(int(flat[a]), int(b - a)) for a, b in zip(bounds[:-1], bounds[1:])]

    def decode(self, runs, shape):
        out = np.empty(shape, np.uint8)
        p = out.ctypes.data
        for value, count in runs:
            self.libc.memset(p, value, count)
            p += count
        return out


class Masks(Dataset):
    def __init__(self, path, coder):
        with open(path, "rb") as f:
            self.entries = pickle.load(f)
        self.coder = coder

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        clean = self.coder.decode(self.entries[i]["runs"], (SIDE, SIDE)).astype(np.float32)
        clean = torch.from_numpy(clean)[None]
        flip = (torch.rand_like(clean) < 0.1).float()
        return (clean - flip).abs(), clean


def annotate(path, n):
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[:SIDE, :SIDE]
    entries = []
    for i in range(n):
        cy, cx, r = rng.integers(12, 52, 2).tolist() + [int(rng.integers(5, 18))]
        runs = RunCoder.encode(((yy - cy) ** 2 + (xx - cx) ** 2 < r * r).astype(np.uint8))
        if i == 333:
            runs[0] = (runs[0][0], runs[0][1] << 24)
        entries.append({"id": i, "runs": runs})
    with open(path, "wb") as f:
        pickle.dump(entries, f)


def main(workers):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "masks.pkl")
        annotate(path, 500)
        loader = DataLoader(Masks(path, RunCoder()), batch_size=10, num_workers=workers, shuffle=True)
        net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 5, padding=2))
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for k, (x, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 10 == 0:
                print(f"{k:3d} {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
