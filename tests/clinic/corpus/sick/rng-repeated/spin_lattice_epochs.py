# cause: rng-repeated, workers-restarted
"""Phase classification of 2-D Ising configurations sampled with a checkerboard Metropolis sweep."""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

L = 32
T_CRITICAL = 2.269


class BoltzmannTable:
    """Acceptance probabilities per temperature step, neighbour sum and field, tabulated on demand."""

    def __init__(self, t_min=1.0, t_max=4.0, n_t=400):
        self.temps = np.linspace(t_min, t_max, n_t)
        rows = []
        for t in self.temps:
            row = []
            for s in (-1, 1):
                for h in range(-4, 5):
                    p = 0.0
                    for k in range(1, 90):  # series for the coarse-grained coupling
                        p += np.exp(-2.0 * s * h * k / t) / (k * k) if s * h > 0 else 1.0 / (k * k)
                    row.append(min(1.0, p))
            rows.append(row)
        self.p = np.asarray(rows, dtype=np.float32).reshape(n_t, 2, 9)

    def nearest(self, t):
        return self.p[int(np.abs(self.temps - t).argmin())]


class IsingConfigurations(Dataset):
    def __init__(self, n, sweeps=25, seed=42):
        self.temperature = np.linspace(1.2, 3.6, n)
        self.sweeps = sweeps
        self.rng = np.random.default_rng(seed)
        self.table = None
        ij = np.add.outer(np.arange(L), np.arange(L))
        self.colour = (ij % 2 == 0, ij % 2 == 1)

    def __len__(self):
        return len(self.temperature)

    def __getitem__(self, i):
        if self.table is None:
            self.table = BoltzmannTable(n_t=500)
        t = self.temperature[i]
        accept = self.table.nearest(t)
        spins = np.where(self.rng.random((L, L)) < 0.75, 1, -1)
        for _ in range(self.sweeps):
            for mask in self.colour:
                h = (np.roll(spins, 1, 0) + np.roll(spins, -1, 0) + np.roll(spins, 1, 1) + np.roll(spins, -1, 1))
                p = accept[(spins + 1) // 2, h + 4]
                spins = np.where(mask & (self.rng.random((L, L)) < p), -spins, spins)
        return torch.from_numpy(spins.astype(np.float32))[None], float(t > T_CRITICAL)


class PhaseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
        self.classify = nn.Linear(8 * 49, 1)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1)).squeeze(1)


class Experiment:
    def __init__(self, out_dir, epochs=40):
        self.out_dir, self.epochs = out_dir, epochs
        self.loader = DataLoader(IsingConfigurations(96), batch_size=8, shuffle=True, num_workers=2)
        self.net = PhaseNet()
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=5e-4)
        self.loss = nn.BCEWithLogitsLoss()

    def run(self):
        for epoch in range(self.epochs):
            t0, right, n = time.time(), 0, 0
            for spins, hot in self.loader:
                logit = self.net(spins)
                loss = self.loss(logit, hot.float())
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                right += ((logit > 0) == (hot > 0.5)).sum().item()
                n += len(hot)
            print(f"epoch {epoch:2d} acc {right / n:.3f} ({time.time() - t0:.2f}s)", flush=True)
            if (epoch + 1) % 10 == 0:
                torch.save(self.net.state_dict(), os.path.join(self.out_dir, f"phase_{epoch + 1}.pt"))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out:
        Experiment(out).run()


if __name__ == "__main__":
    main()
