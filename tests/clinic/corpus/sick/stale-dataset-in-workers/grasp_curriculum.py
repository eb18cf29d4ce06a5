# cause: stale-dataset-in-workers
# also: rng-repeated
"""Grasp success prediction with a clutter curriculum (depth images rendered on the fly)."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Stage:
    name: str
    objects: int
    epochs: int


PLAN = [Stage("single", 1, 2), Stage("pair", 4, 2), Stage("bin", 12, 2)]


class DepthScenes(Dataset):
    def __init__(self, n, px=96, seed=21):
        self.n, self.px = n, px
        self.objects = 1
        self.rs = np.random.RandomState(seed)
        self.grid = np.mgrid[0:px, 0:px].astype(np.float32) / px

    def configure(self, stage: Stage):
        self.objects = stage.objects

    def __len__(self):
        return self.n

    def blob(self):
        cy, cx, a, b = self.rs.uniform([0.1, 0.1, 0.05, 0.05], [0.9, 0.9, 0.2, 0.2])
        th = self.rs.uniform(0, np.pi)
        y, x = self.grid[0] - cy, self.grid[1] - cx
        u, v = x * np.cos(th) + y * np.sin(th), -x * np.sin(th) + y * np.cos(th)
        return np.sqrt(np.clip(1 - (u / a) ** 2 - (v / b) ** 2, 0, None)), (cy, cx, th)

    def __getitem__(self, i):
        depth, poses = np.zeros((self.px, self.px), np.float32), []
        for _ in range(self.objects):
            h, pose = self.blob()
            depth = np.maximum(depth, h)
            poses.append(pose)
        gy, gx = np.gradient(depth)
        normals = np.stack([depth, gx, gy, np.hypot(gx, gy)])
        for _ in range(6):     # sensor blur
            normals = (normals + np.roll(normals, 1, 1) + np.roll(normals, 1, 2)) / 3
        pose = poses[self.rs.randint(len(poses))]
        jaw = np.array(pose) + self.rs.normal(0, 0.15, 3)
        ok = np.hypot(*(jaw[:2] - pose[:2])) < 0.15
        return normals.astype(np.float32), jaw.astype(np.float32), np.float32(ok)


class GraspNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(4, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.out = nn.Sequential(nn.Linear(147, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, img, jaw):
        return self.out(torch.cat([self.enc(img), jaw], 1)).squeeze(1)


class CurriculumRunner:
    def __init__(self, plan):
        self.plan = plan
        self.scenes = DepthScenes(400)
        self.loader = DataLoader(self.scenes, batch_size=32, num_workers=2, persistent_workers=True)
        self.net = GraspNet()
        self.opt = torch.optim.Adam(self.net.parameters(), 2e-3)

    def epoch(self):
        tot = 0.0
        for img, jaw, ok in self.loader:
            loss = nn.functional.binary_cross_entropy_with_logits(self.net(img, jaw), ok)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            tot += loss.item()
        return tot / len(self.loader)

    def run(self):
        for stage in self.plan:
            self.scenes.configure(stage)
            for e in range(stage.epochs):
                print(f"{stage.name:>7} ({self.scenes.objects:2d} objects) epoch {e}: bce {self.epoch():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    CurriculumRunner(PLAN).run()
