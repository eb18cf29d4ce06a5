# cause: missing-main-guard
"""Salinity profiles from float soundings.  Channel statistics are measured once and shared by all configurations."""
import argparse
import os
import struct
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

METHOD = os.environ.get("LOADER_METHOD", "forkserver")
CACHE = tempfile.TemporaryDirectory(prefix="floats_")
DEPTHS = 200


def write_casts(folder, n):
    rng = np.random.default_rng(1)
    for k in range(n):
        depth = np.sort(rng.uniform(0, 2000, DEPTHS)).astype(np.float32)
        temp = (20 * np.exp(-depth / 500) + rng.normal(0, 0.2, DEPTHS)).astype(np.float32)
        salt = (35 + 0.8 * np.tanh((depth - 300) / 200) - 0.02 * temp).astype(np.float32)
        with open(os.path.join(folder, f"cast_{k:04d}.bin"), "wb") as f:
            f.write(struct.pack("<I", DEPTHS) + np.stack([depth, temp, salt]).tobytes())


class Casts(Dataset):
    def __init__(self, folder, mean=None, std=None):
        self.files = sorted(os.path.join(folder, n) for n in os.listdir(folder))
        self.mean, self.std = mean, std

    def __len__(self):
        return len(self.files)

    def __getitem__(self, k):
        with open(self.files[k], "rb") as f:
            (n,) = struct.unpack("<I", f.read(4))
            depth, temp, salt = np.frombuffer(f.read(), dtype=np.float32).reshape(3, n)
        grid = np.linspace(0, 2000, 512)
        x = np.stack([np.interp(grid, depth, temp), np.gradient(np.interp(grid, depth, temp))]).astype(np.float32)
        if self.mean is not None:
            x = (x - self.mean[:, None]) / self.std[:, None]
        return torch.from_numpy(x), torch.from_numpy(np.interp(grid[::8], depth, salt).astype(np.float32))


def measure(folder):
    """Mean and deviation over all casts, with the same loader as training."""
    loader = DataLoader(Casts(folder), batch_size=32, num_workers=2, multiprocessing_context=METHOD)
    n, s, q = 0, np.zeros(2), np.zeros(2)
    for x, _ in loader:
        n += x.shape[0] * x.shape[2]
        s += x.sum((0, 2)).numpy()
        q += (x ** 2).sum((0, 2)).numpy()
    mean = s / n
    return mean.astype(np.float32), np.sqrt(q / n - mean ** 2).astype(np.float32)


write_casts(CACHE.name, 240)
MEAN, STD = measure(CACHE.name)


class Profiler(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, hidden, 9, stride=2, padding=4), nn.GELU(),
                                  nn.Conv1d(hidden, hidden, 9, stride=4, padding=4), nn.GELU())
        self.out = nn.Conv1d(hidden, 1, 1)

    def forward(self, x):
        return 35 + self.out(self.conv(x)).squeeze(1)


def train(hidden, lr, epochs):
    loader = DataLoader(Casts(CACHE.name, MEAN, STD), batch_size=16, shuffle=True, num_workers=2,
                        multiprocessing_context=METHOD, persistent_workers=True)
    net = Profiler(hidden)
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"hidden {hidden} epoch {epoch} error {total / len(loader):.4f} psu", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hidden", type=int, nargs="+", default=[16])
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    for hidden in args.hidden:
        train(hidden, args.lr, args.epochs)


if __name__ == "__main__":
    main()
