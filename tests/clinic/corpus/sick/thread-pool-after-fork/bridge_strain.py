# cause: thread-pool-after-fork
"""Damage index of bridges from strain gauges.  Several gauge files make one sample and are read side by side."""
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

GAUGES = 6


def write_bridge(folder, k, rng):
    damage = float(rng.uniform(0, 1))
    t = np.linspace(0, 20, 1500)
    for g in range(GAUGES):
        y = np.sin(t * (3 - damage) + g) + 0.2 * np.sin(t * 11 * (1 - 0.2 * damage)) + rng.normal(0, 0.05, t.size)
        np.save(os.path.join(folder, f"b{k:04d}_g{g}.npy"), y.astype(np.float32))
    return damage


class ParallelFiles:
    """Reads a group of arrays at once; the archive answers slowly but takes many requests."""

    def __init__(self, folder, width, latency):
        self.folder, self.latency = folder, latency
        self.pool = ThreadPoolExecutor(max_workers=width, thread_name_prefix="archive")

    def one(self, name):
        time.sleep(self.latency)
        return np.load(os.path.join(self.folder, name))

    def many(self, names):
        return list(self.pool.map(self.one, names))


class Bridges(Dataset):
    def __init__(self, files, targets):
        self.files = files
        self.targets = np.asarray(targets, dtype=np.float32)
        self.scale = self._scale(range(min(8, len(targets))))

    def names(self, k):
        return [f"b{k:04d}_g{g}.npy" for g in range(GAUGES)]

    def _scale(self, ks):
        return float(np.mean([np.abs(a).max() for k in ks for a in self.files.many(self.names(k))]))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, k):
        x = np.stack(self.files.many(self.names(k))) / self.scale
        spec = np.abs(np.fft.rfft(x, axis=1))[:, :256]
        return torch.from_numpy(np.log1p(spec).astype(np.float32)), torch.tensor(self.targets[k])


class DamageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(GAUGES, 16, 7, stride=2)
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        h = torch.relu(self.mix(x)).transpose(1, 2)
        _, last = self.gru(h[:, ::4])
        return self.out(last[-1]).squeeze(1)


def loop(net, loader, opt=None):
    total = n = 0
    for x, y in loader:
        with torch.set_grad_enabled(opt is not None):
            loss = nn.functional.mse_loss(net(x), y)
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total, n = total + loss.item() * len(y), n + len(y)
    return total / n


def main():
    torch.manual_seed(10)
    rng = np.random.default_rng(10)
    with tempfile.TemporaryDirectory(prefix="bridges_") as folder:
        targets = [write_bridge(folder, k, rng) for k in range(160)]
        data = Bridges(ParallelFiles(folder, width=GAUGES, latency=0.008), targets)
        train, val = random_split(data, [128, 32])
        train_loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=3, persistent_workers=True)
        val_loader = DataLoader(val, batch_size=16)
        net = DamageNet()
        opt = torch.optim.Adam(net.parameters(), lr=4e-3)
        best = float("inf")
        for epoch in range(3):
            a, b = loop(net, train_loader, opt), loop(net, val_loader)
            best = min(best, b)
            print(f"epoch {epoch} train {a:.4f} val {b:.4f} best {best:.4f}", flush=True)


if __name__ == "__main__":
    main()
