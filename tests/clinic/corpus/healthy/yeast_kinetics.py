"""Rate constants of yeast enzymes from simulated progress curves; the substrate table travels with the dataset."""
import argparse
import dataclasses
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

Run = dataclasses.make_dataclass("Run", [("path", str), ("substrate", int), ("vmax", float), ("km", float)], frozen=True)
Run.__module__ = __name__


class SubstrateTable:
    """Packed fingerprints.  Only the bits are shipped, each process unpacks them when it needs them."""

    def __init__(self, bits):
        self.packed, self.width, self.dense = np.packbits(bits, axis=1), bits.shape[1], None

    def __getstate__(self):
        return {"width": self.width, "packed": self.packed, "dense": None}

    def row(self, k):
        if self.dense is None:
            self.dense = np.unpackbits(self.packed, axis=1, count=self.width).astype(np.float32)
        return torch.tensor(self.dense[k])


class Curves(Dataset):
    def __init__(self, runs, table, points=48):
        self.runs, self.table, self.points = runs, table, points

    def __len__(self):
        return len(self.runs)

    def __getitem__(self, k):
        run = self.runs[k]
        with open(run.path) as f:
            obs = np.array([[float(v) for v in line.split()] for line in f], dtype=np.float64)
        best = None
        for km in np.linspace(0.1, 1.0, 10):
            s, dt, sim = 1.0, obs[-1, 0] / 480, []
            for _ in range(480):
                s = max(s - dt * s / (s + km), 0.0)
                sim.append(s)
            resid = np.interp(np.linspace(0, obs[-1, 0], 480), obs[:, 0], obs[:, 1]) - np.array(sim)
            if best is None or np.square(resid).sum() < np.square(best).sum():
                best = resid
        x = torch.cat([torch.tensor(best[::10], dtype=torch.float32), self.table.row(run.substrate)])
        return x, torch.tensor([run.vmax, run.km])


def simulate(folder, n, substrates):
    rng = np.random.default_rng(14)
    runs = []
    for k in range(n):
        sub, vmax, km = int(rng.integers(substrates)), float(rng.uniform(0.5, 2)), float(rng.uniform(0.1, 1))
        t = np.sort(rng.uniform(0, 5, 60))
        y = np.exp(-vmax * t / (km + 0.5)) + rng.normal(0, 0.01, 60)
        path = os.path.join(folder, f"run{k:04d}.txt")
        np.savetxt(path, np.stack([t, y], axis=1), fmt="%.5f")
        runs.append(Run(path, sub, vmax, km))
    return runs


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--context", default="forkserver", choices=["fork", "spawn", "forkserver"])
    args = ap.parse_args()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory(prefix="yeast_") as folder:
        bits = np.random.default_rng(0).integers(0, 2, size=(300, 512), dtype=np.uint8)
        data = Curves(simulate(folder, 400, 300), SubstrateTable(bits))
        loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=2, multiprocessing_context=args.context, persistent_workers=True)
        net = nn.Sequential(nn.Linear(48 + 512, 64), nn.Tanh(), nn.Linear(64, 2))
        opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.mse_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.06)    # stands for the accelerator
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
