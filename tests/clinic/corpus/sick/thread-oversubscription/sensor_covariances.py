# cause: thread-oversubscription
# arguments: --epochs 2
"""Fault classification on windows of multi-channel vibration data, after whitening and subspace projection."""
import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Rig:
    channels: int = 96
    window: int = 384
    faults: int = 4
    rank: int = 24
    records: int = 64

    def record(self, rng, fault):
        t = np.arange(self.window) / self.window
        modes = np.stack([np.sin(2 * np.pi * (fault * 3 + m + 4) * t + rng.uniform(0, 6)) for m in range(6)])
        shape = rng.normal(size=(self.channels, 6)) * (1 + np.arange(6) * fault * 0.2)
        return (shape @ modes + rng.normal(size=(self.channels, self.window))).astype(np.float64)


class Windows(Dataset):
    def __init__(self, rig: Rig, seed: int):
        rng = np.random.default_rng(seed)
        self.rig = rig
        self.y = rng.integers(0, rig.faults, rig.records)
        self.x = [rig.record(rng, int(f)) for f in self.y]

    def __len__(self):
        return len(self.y)

    def features(self, x):
        x = x - x.mean(1, keepdims=True)
        cov = x @ x.T / x.shape[1] + 0.1 * np.eye(len(x))
        scale = np.trace(cov)
        z, y = np.eye(len(cov)), cov / scale
        for _ in range(3):
            t = 0.5 * (3 * np.eye(len(cov)) - z @ y)
            y, z = y @ t, t @ z
        white = (z / np.sqrt(scale)) @ x
        basis = np.eye(len(cov))[:, : self.rig.rank]
        for _ in range(2):
            basis, _ = np.linalg.qr(cov @ basis)
        return np.abs(np.fft.rfft(basis.T @ white, axis=1))[:, :96]

    def __getitem__(self, i):
        f = torch.from_numpy(self.features(self.x[i])).float()
        return torch.log1p(f), int(self.y[i])


class Net(nn.Module):
    def __init__(self, rig: Rig):
        super().__init__()
        self.conv = nn.Conv1d(rig.rank, 24, 5, padding=2)
        self.head = nn.Linear(24, rig.faults)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean(-1))


class Experiment:
    def __init__(self, rig, workers, batch):
        kw = dict(batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
        self.train = DataLoader(Windows(rig, 0), shuffle=True, **kw)
        self.net = Net(rig)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=3e-3)

    def epoch(self):
        losses = []
        for x, y in self.train:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return float(np.mean(losses))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--batch", type=int, default=8)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    exp = Experiment(Rig(), a.workers, a.batch)
    for e in range(a.epochs):
        began = time.perf_counter()
        loss = exp.epoch()
        print(f"epoch {e} loss {loss:.4f} in {time.perf_counter() - began:.2f}s", flush=True)


if __name__ == "__main__":
    main()
