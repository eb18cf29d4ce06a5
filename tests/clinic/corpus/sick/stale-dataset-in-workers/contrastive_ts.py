# cause: stale-dataset-in-workers
"""Contrastive learning on accelerometer windows, reproducible views per (epoch, sample)."""
import os
import tempfile
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ViewMaker:
    def __init__(self, seed):
        self.seed = seed
        self.epoch = 0

    def rng(self, index, view):
        return np.random.default_rng([self.seed, self.epoch, index, view])

    def __call__(self, x, index, view):
        g = self.rng(index, view)
        x = x * g.uniform(0.8, 1.2, (x.shape[0], 1))
        knots = np.cumsum(g.uniform(0.5, 1.5, 16))
        warp = np.interp(np.linspace(0, 15, x.shape[1]), np.arange(16), (knots - knots[0]) / (knots[-1] - knots[0]))
        grid = np.linspace(0, 1, x.shape[1])
        x = np.stack([np.interp(warp, grid, c) for c in x])
        return x + g.normal(0, 0.05, x.shape)


class PairDataset(Dataset):
    def __init__(self, folder, views):
        self.paths = [os.path.join(folder, f) for f in sorted(os.listdir(folder))]
        self.views = views

    def set_epoch(self, epoch):
        self.views.epoch = epoch

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            x = np.frombuffer(zlib.decompress(f.read()), dtype=np.float32).reshape(3, 1500).astype(np.float64)
        for _ in range(4):
            spec = np.fft.rfft(x, axis=1)
            spec[:, 400:] *= 0.5
            x = np.fft.irfft(spec, n=1500, axis=1)
        a, b = self.views(x, i, 0), self.views(x, i, 1)
        return torch.from_numpy(a).float(), torch.from_numpy(b).float()


class Encoder(nn.Sequential):
    def __init__(self, dim=32):
        super().__init__(nn.Conv1d(3, 32, 9, stride=4), nn.ReLU(), nn.Conv1d(32, 48, 9, stride=4), nn.ReLU(),
                         nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(192, dim))


def info_nce(a, b, tau=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / tau
    sim.fill_diagonal_(-1e9)
    n = len(a)
    return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def write_recordings(folder, n):
    rs = np.random.RandomState(2)
    t = np.linspace(0, 30, 1500)
    for i in range(n):
        x = np.stack([np.sin((1 + i % 9) * t + k) + rs.normal(0, .2, 1500) for k in range(3)]).astype(np.float32)
        with open(os.path.join(folder, f"rec{i:04d}.z"), "wb") as f:
            f.write(zlib.compress(x.tobytes(), 1))


def main(epochs=4, batch=16):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder, 256)
        data = PairDataset(folder, ViewMaker(seed=42))
        loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, num_workers=2,
                            prefetch_factor=3, persistent_workers=True)
        net = Encoder()
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(epochs):
            data.set_epoch(epoch)
            mean = 0.0
            for a, b in loader:
                loss = info_nce(net(a), net(b))
                opt.zero_grad()
                loss.backward()
                opt.step()
                mean += loss.item() / len(loader)
            print(f"epoch {epoch}: nce {mean:.3f}", flush=True)


if __name__ == "__main__":
    main()
