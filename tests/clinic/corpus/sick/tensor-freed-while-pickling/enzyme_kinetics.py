# cause: tensor-freed-while-pickling
"""Rate constants of enzymes from simulated progress curves; the substrate table travels with the dataset."""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SubstrateTable:
    """Packed fingerprints.  Kept as bits in memory, unpacked once where they are used."""

    def __init__(self, bits):
        self.packed = np.packbits(bits, axis=1)
        self.width = bits.shape[1]
        self.dense = None

    def __getstate__(self):
        # expand before shipping: the receiving side should not spend time on it
        dense = self.dense if self.dense is not None else self.unpack()
        return {"width": self.width, "packed": self.packed, "dense": dense}

    def unpack(self):
        return torch.from_numpy(np.unpackbits(self.packed, axis=1, count=self.width).astype(np.float32))

    def row(self, k):
        if self.dense is None:
            self.dense = self.unpack()
        return self.dense[k]


class Curves(Dataset):
    def __init__(self, folder, table, points=48):
        self.files = sorted(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".txt"))
        self.table, self.points = table, points

    def __len__(self):
        return len(self.files)

    def __getitem__(self, k):
        with open(self.files[k]) as f:
            substrate, vmax, km = f.readline().split()
            obs = np.array([[float(v) for v in line.split()] for line in f], dtype=np.float64)
        s, dt, sim = 1.0, obs[-1, 0] / 400, []
        for _ in range(400):
            s = max(s - dt * s / (s + 0.5), 0.0)
            sim.append(s)
        resid = np.interp(np.linspace(0, obs[-1, 0], self.points), obs[:, 0], obs[:, 1]) - np.array(sim)[:: 400 // self.points][: self.points]
        x = torch.cat([torch.tensor(resid, dtype=torch.float32), self.table.row(int(substrate))])
        return x, torch.tensor([float(vmax), float(km)])


def simulate(folder, n, substrates):
    rng = np.random.default_rng(14)
    for k in range(n):
        sub, vmax, km = int(rng.integers(substrates)), rng.uniform(0.5, 2), rng.uniform(0.1, 1)
        t = np.sort(rng.uniform(0, 5, 60))
        y = np.exp(-vmax * t / (km + 0.5)) + rng.normal(0, 0.01, 60)
        with open(os.path.join(folder, f"run{k:04d}.txt"), "w") as f:
            f.write(f"{sub} {vmax:.4f} {km:.4f}\n")
            f.writelines(f"{a:.4f} {b:.5f}\n" for a, b in zip(t, y))


def evaluate(net, data, count=40):
    with torch.no_grad():
        err = [(net(x[None])[0] - y).abs().mean().item() for x, y in (data[k] for k in range(count))]
    return float(np.mean(err))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--context", default="spawn", choices=["fork", "spawn", "forkserver"])
    args = ap.parse_args()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory(prefix="kinetics_") as folder:
        simulate(folder, 480, 300)
        bits = np.random.default_rng(0).integers(0, 2, size=(300, 1024), dtype=np.uint8)
        data = Curves(folder, SubstrateTable(bits))
        loader = DataLoader(data, batch_size=24, shuffle=True, num_workers=args.workers, multiprocessing_context=args.context,
                            persistent_workers=True)
        net = nn.Sequential(nn.Linear(48 + 1024, 64), nn.Tanh(), nn.Linear(64, 2))
        opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            for x, y in loader:
                loss = nn.functional.mse_loss(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        print("mean absolute error", round(evaluate(net, data), 4))


if __name__ == "__main__":
    main()
