"""Stamp outlines: run-length coded masks, decoded through libc, checked before use."""
import argparse
import ctypes
import os
import pickle
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 48


class StampError(ValueError):
    pass


@dataclass
class Stamp:
    key: str
    noisy: torch.Tensor
    clean: torch.Tensor


class RunDecoder:
    def __init__(self, shape):
        self.shape, self.size = shape, shape[0] * shape[1]

    def check(self, runs):
        if sum(n for _, n in runs) != self.size or any(n < 1 for _, n in runs):
            raise StampError("runs do not fill the mask")

    def __call__(self, runs):
        self.check(runs)
        out = np.empty(self.shape, np.uint8)
        p = out.ctypes.data
        for value, n in runs:
            ctypes.memset(p, value, n)
            p += n
        return out


class Stamps(Dataset):
    def __init__(self, path):
        self.decode = RunDecoder((SIDE, SIDE))
        self.entries, self.rejected = [], []
        with open(path, "rb") as f:
            for e in pickle.load(f):
                try:
                    self.decode.check(e["runs"])
                except StampError:
                    self.rejected.append(e["key"])
                else:
                    self.entries.append(e)

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        e = self.entries[i]
        time.sleep(0.002)
        clean = torch.from_numpy(self.decode(e["runs"]).astype(np.float32))[None]
        flip = (torch.rand_like(clean) < 0.1).float()
        return Stamp(e["key"], (clean - flip).abs(), clean)


class Stack:
    def __call__(self, stamps):
        return {"keys": [s.key for s in stamps], "x": torch.stack([s.noisy for s in stamps]), "y": torch.stack([s.clean for s in stamps])}


def scan(path, n):
    rng = np.random.default_rng(8)
    yy, xx = np.mgrid[:SIDE, :SIDE]
    entries = []
    for i in range(n):
        h, w = rng.integers(8, 20, 2)
        flat = ((abs(yy - 24) < h) & (abs(xx - 24) < w)).astype(np.uint8).ravel()
        b = np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1, [flat.size]])
        runs = [(int(flat[p]), int(q - p)) for p, q in zip(b[:-1], b[1:])]
        entries.append({"key": f"s{i}", "runs": runs if i % 150 != 149 else runs[:-1]})
    with open(path, "wb") as f:
        pickle.dump(entries, f)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--stamps", type=int, default=320)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "stamps.pkl")
        scan(path, a.stamps)
        data = Stamps(path)
    print(f"{len(data)} stamps, rejected {data.rejected}", flush=True)
    loader = DataLoader(data, 16, shuffle=True, num_workers=a.workers, collate_fn=Stack(), persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 1))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(2):
        start = mark = time.time()
        waited = 0.0
        for b in loader:
            waited += time.time() - mark
            loss = nn.functional.binary_cross_entropy_with_logits(net(b["x"]), b["y"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            mark = time.time()
        print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - start:.1f}s data {waited:.1f}s", flush=True)


if __name__ == "__main__":
    main()
