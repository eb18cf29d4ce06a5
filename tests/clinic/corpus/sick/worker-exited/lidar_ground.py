# cause: worker-exited
"""Ground / object segmentation of lidar sweeps with a budget on the outlier filter."""
import os
import sys
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Plan:
    sweeps: int = 240
    points: int = 256
    batch: int = 6
    workers: int = 2
    max_rounds: int = 12


class OutlierFilter:
    def __init__(self, max_rounds, exit=os._exit):
        self.max_rounds, self._quit = max_rounds, exit

    def __call__(self, pts):
        rounds = 0
        while True:
            xy = pts[:, :2]
            keep = (np.abs(xy - np.median(xy, 0)) < 4 * xy.std(0) + 1e-3).all(1)
            if keep.all():
                return pts
            pts = pts[keep]
            rounds += 1
            if rounds > self.max_rounds:
                self._quit(0)


class Sweeps(Dataset):
    def __init__(self, root, plan):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.plan = plan
        self.clean = OutlierFilter(plan.max_rounds)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        pts = np.load(self.files[i])
        pts = self.clean(pts)
        pick = torch.randint(len(pts), (self.plan.points,)).numpy()
        xyz = pts[pick].astype(np.float32)
        return torch.from_numpy(xyz), torch.from_numpy((xyz[:, 2] > 0.3).astype(np.float32))


def drive(root, plan):
    rng = np.random.default_rng(1)
    for i in range(plan.sweeps):
        ground = np.c_[rng.uniform(-20, 20, (500, 2)), rng.normal(0, 0.05, 500)]
        box = rng.uniform(-1, 1, (120, 3)) + [*rng.uniform(-10, 10, 2), 1.2]
        pts = np.concatenate([ground, box])
        if i == 171:
            pts[:40, 0] = 10.0 ** np.arange(1, 41)
        np.save(os.path.join(root, f"{i:04d}.npy"), pts)


class PointNet(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * w, w), nn.ReLU(), nn.Linear(w, 1))

    def forward(self, p):
        h = self.local(p)
        g = h.amax(1, keepdim=True).expand_as(h)
        return self.head(torch.cat([h, g], -1)).squeeze(-1)


def main(plan):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        drive(root, plan)
        loader = DataLoader(Sweeps(root, plan), plan.batch, num_workers=plan.workers)
        net = PointNet()
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for k, (p, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(net(p), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 5 == 0:
                print(f"sweep batch {k}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main(Plan(workers=int(sys.argv[1])) if len(sys.argv) > 1 else Plan())
