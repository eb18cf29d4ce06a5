# cause: worker-out-of-memory
# limits: memory=1G
"""Scene classification on lidar sweeps with k-nearest-neighbour edge features."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCENES = ("street", "tunnel", "field")


class NeighbourGraph:
    """Indices of the k nearest points of each point."""

    def __init__(self, k):
        self.k = k

    def distances(self, xyz):
        square = (xyz ** 2).sum(1)
        return square[:, None] + square[None, :] - 2 * (xyz @ xyz.T)

    def __call__(self, sweep):
        xyz = sweep["xyz"]
        nearest = np.argpartition(self.distances(xyz), self.k, axis=1)[:, :self.k]
        sweep["edges"] = (xyz[nearest] - xyz[:, None]).mean(1)
        return sweep


class Subsample:
    def __init__(self, points):
        self.points = points

    def __call__(self, sweep):
        keep = torch.randperm(len(sweep["xyz"]))[:self.points].numpy()
        return {k: v[keep] if isinstance(v, np.ndarray) else v for k, v in sweep.items()}


class ToTensors:
    def __call__(self, sweep):
        points = np.concatenate([sweep["xyz"], sweep["edges"]], 1).astype(np.float32)
        return torch.from_numpy(points), sweep["scene"]


class LidarSweeps(Dataset):
    def __init__(self, sizes, steps):
        self.sizes = sizes
        self.steps = steps

    def __len__(self):
        return len(self.sizes)

    def read(self, i):
        rng = np.random.default_rng(i)
        scene = i % len(SCENES)
        xyz = rng.normal(0, 1, (self.sizes[i], 3))
        xyz[:, scene] *= 4
        return {"xyz": xyz, "scene": scene}

    def __getitem__(self, i):
        sweep = self.read(i)
        for step in self.steps:
            sweep = step(sweep)
        return sweep


class PointNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.scene = nn.Linear(width, len(SCENES))

    def forward(self, points):
        return self.scene(self.point(points).max(1).values)


def sweep_sizes(count):
    """Points per sweep; the stationary survey scans are denser."""
    sizes = np.random.default_rng(1).integers(500, 900, count)
    sizes[count // 6::count // 2] = 8000
    return sizes.tolist()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sweeps", type=int, default=600)
    ap.add_argument("--points", type=int, default=400)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    steps = [NeighbourGraph(k=8), Subsample(args.points), ToTensors()]
    loader = DataLoader(LidarSweeps(sweep_sizes(args.sweeps), steps), batch_size=8, num_workers=args.workers)
    model = PointNet()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        for n, (points, scene) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(points), scene)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if n % 5 == 0:
                print(f"epoch {epoch} batch {n} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
