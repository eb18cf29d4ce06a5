"""Damage index of tunnels from strain gauges.  Several gauge files make one sample and are read side by side."""
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

GAUGES = 6


def write_tunnel(folder, k, rng):
    damage = float(rng.uniform(0, 1))
    t = np.linspace(0, 20, 1500)
    for g in range(GAUGES):
        y = np.sin(t * (3 - damage) + g) + 0.2 * np.sin(t * 11 * (1 - 0.2 * damage)) + rng.normal(0, 0.05, t.size)
        np.save(os.path.join(folder, f"t{k:04d}_g{g}.npy"), y.astype(np.float32))
    return damage


class ParallelFiles:
    """Reads a group of arrays at once.  The pool belongs to the process that uses it."""

    def __init__(self, folder, width, latency):
        self.folder, self.width, self.latency = folder, width, latency
        self._pool, self._owner = None, None

    @property
    def pool(self):
        if self._owner != os.getpid():
            self._pool, self._owner = ThreadPoolExecutor(max_workers=self.width), os.getpid()
        return self._pool

    def one(self, name):
        time.sleep(self.latency)
        return np.load(os.path.join(self.folder, name))

    def many(self, names):
        return list(self.pool.map(self.one, names))


class Tunnels(Dataset):
    def __init__(self, files, targets, scale):
        self.files, self.scale = files, scale
        self.targets = np.asarray(targets, dtype=np.float32)

    @staticmethod
    def names(k):
        return [f"t{k:04d}_g{g}.npy" for g in range(GAUGES)]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, k):
        x = np.stack(self.files.many(self.names(k))) / self.scale
        spec = np.abs(np.fft.rfft(x, axis=1))[:, :256]
        return torch.from_numpy(np.log1p(spec).astype(np.float32)), torch.tensor(self.targets[k])


def measure_scale(folder, count):
    with ThreadPoolExecutor(4) as pool:
        peaks = pool.map(lambda n: float(np.abs(np.load(os.path.join(folder, n))).max()), [n for k in range(count) for n in Tunnels.names(k)])
        return float(np.mean(list(peaks)))


class DamageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(GAUGES, 16, 7, stride=2)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.mix(x))
        return self.out(torch.cat([h.mean(2), h.amax(2)], dim=1)).squeeze(1)


def loop(net, loader, opt=None):
    total = n = 0
    for x, y in loader:
        with torch.set_grad_enabled(opt is not None):
            loss = nn.functional.mse_loss(net(x), y)
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        time.sleep(0.06)    # stands for the accelerator
        total, n = total + loss.item() * len(y), n + len(y)
    return total / n


def main():
    torch.manual_seed(10)
    rng = np.random.default_rng(10)
    with tempfile.TemporaryDirectory(prefix="tunnels_") as folder:
        targets = [write_tunnel(folder, k, rng) for k in range(144)]
        data = Tunnels(ParallelFiles(folder, width=GAUGES, latency=0.006), targets, measure_scale(folder, 8))
        train, val = random_split(data, [120, 24])
        common = dict(batch_size=8, num_workers=2, persistent_workers=True)
        train_loader, val_loader = DataLoader(train, shuffle=True, **common), DataLoader(val, **common)
        net = DamageNet()
        opt = torch.optim.Adam(net.parameters(), lr=4e-3)
        for epoch in range(3):
            a, b = loop(net, train_loader, opt), loop(net, val_loader)
            print(f"epoch {epoch} train {a:.4f} val {b:.4f}", flush=True)


if __name__ == "__main__":
    main()
