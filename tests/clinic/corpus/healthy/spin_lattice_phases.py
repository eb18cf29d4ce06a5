"""Phase classification of 2-D Ising configurations; many short epochs, fresh thermal noise in each."""
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

L = 32
T_CRITICAL = 2.269


class IsingConfigurations(Dataset):
    def __init__(self, n, sweeps=8):
        self.temperature = np.linspace(1.2, 3.6, n)
        self.sweeps = sweeps
        self.rng = None
        self.owner = None
        ij = np.add.outer(np.arange(L), np.arange(L))
        self.colour = (ij % 2 == 0, ij % 2 == 1)

    def __len__(self):
        return len(self.temperature)

    def _generator(self):
        # every process draws from a stream of its own, seeded by torch's per-worker seed
        if self.owner != os.getpid():
            self.owner = os.getpid()
            self.rng = np.random.default_rng(torch.initial_seed())
        return self.rng

    def __getitem__(self, i):
        rng = self._generator()
        t = self.temperature[i]
        spins = np.where(rng.random((L, L)) < 0.75, 1, -1)
        for _ in range(self.sweeps):
            for mask in self.colour:
                h = (np.roll(spins, 1, 0) + np.roll(spins, -1, 0) + np.roll(spins, 1, 1) + np.roll(spins, -1, 1))
                flip = rng.random((L, L)) < np.exp(-2.0 * spins * h / t)
                spins = np.where(mask & flip, -spins, spins)
        return torch.from_numpy(spins.astype(np.float32))[None], float(t > T_CRITICAL)


class ResidualBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1, padding_mode="circular")
        self.b = nn.Conv2d(c, c, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return x + self.b(torch.relu(self.a(torch.relu(x))))


class PhaseNet(nn.Module):
    def __init__(self, width=40, depth=4):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, padding_mode="circular")
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(depth)])
        self.classify = nn.Linear(width, 1)

    def forward(self, x):
        return self.classify(self.blocks(self.stem(x)).mean((2, 3))).squeeze(1)


class Experiment:
    def __init__(self, out_dir, epochs=16):
        self.out_dir, self.epochs = out_dir, epochs
        self.loader = DataLoader(IsingConfigurations(96), batch_size=16, shuffle=True, num_workers=1,
                                 persistent_workers=True)
        self.net = PhaseNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)
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
        torch.save(self.net.state_dict(), os.path.join(self.out_dir, "phase.pt"))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as out:
        Experiment(out).run()


if __name__ == "__main__":
    main()
