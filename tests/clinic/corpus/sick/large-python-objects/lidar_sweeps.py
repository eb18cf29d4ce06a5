# cause: large-python-objects
"""Ground segmentation on rotating lidar sweeps."""
import time
from dataclasses import dataclass, field
from typing import List, Tuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Sweep:
    stamp: float
    points: List[Tuple[float, float, float]] = field(default_factory=list)
    rings: List[int] = field(default_factory=list)
    ground: List[bool] = field(default_factory=list)


class Drive(Dataset):
    def __init__(self, sweeps, points):
        self.sweeps, self.points = sweeps, points

    def __len__(self):
        return self.sweeps

    def simulate(self, i):
        rng = np.random.default_rng(i)
        ang = rng.uniform(0, 2 * np.pi, self.points)
        dist = rng.uniform(2, 60, self.points)
        z = np.where(rng.random(self.points) < 0.6, 0.02 * rng.standard_normal(self.points), rng.uniform(0.3, 3, self.points))
        return np.stack([dist * np.cos(ang), dist * np.sin(ang), z], 1), (dist // 2).astype(int), np.abs(z) < 0.1

    def __getitem__(self, i):
        xyz, ring, ground = self.simulate(i)
        return Sweep(i * 0.1, [tuple(p) for p in xyz.tolist()], ring.tolist(), ground.tolist())


class ToVoxels:
    def __init__(self, cell):
        self.cell = cell

    def __call__(self, sweep):
        pts = torch.tensor(sweep.points[:512])
        key = torch.tensor(sweep.rings[:512]).float() / 30
        return torch.cat([pts / self.cell, key[:, None]], 1), torch.tensor(sweep.ground[:512]).float()


def as_list(batch):
    return batch


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        h = self.point(x)
        g = h.amax(1, keepdim=True).expand_as(h)
        return self.head(torch.cat([h, g], -1)).squeeze(-1)


def main():
    torch.set_num_threads(1)
    loader = DataLoader(Drive(96, 8000), batch_size=4, num_workers=2, collate_fn=as_list)
    voxels = ToVoxels(10.0)
    model = Segmenter()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = time.time()
    for step, sweeps in enumerate(loader):
        x, y = (torch.stack(t) for t in zip(*map(voxels, sweeps)))
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 6 == 5:
            print("step %d loss %.4f %.1f sweeps/s" % (step + 1, loss.item(), 4 * (step + 1) / (time.time() - start)), flush=True)


if __name__ == "__main__":
    main()
