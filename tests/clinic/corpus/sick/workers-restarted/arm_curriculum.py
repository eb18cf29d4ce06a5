# cause: workers-restarted
"""Inverse kinematics network for a redundant arm, trained on a curriculum of ever wider joint ranges."""
import functools
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

LINKS = (0.31, 0.27, 0.22, 0.18, 0.12, 0.07)


@functools.lru_cache(maxsize=None)
def self_collision_map(resolution):
    """Occupancy of the shoulder / elbow plane, swept once and remembered."""
    occ = np.zeros((resolution, resolution), dtype=bool)
    for a in range(resolution):
        for b in range(resolution):
            q1 = (a / resolution - 0.5) * 2 * math.pi
            q2 = (b / resolution - 0.5) * 2 * math.pi
            x = LINKS[0] * math.cos(q1) + LINKS[1] * math.cos(q1 + q2)
            y = LINKS[0] * math.sin(q1) + LINKS[1] * math.sin(q1 + q2)
            d = min(math.hypot(x - 0.1 * k * math.cos(q1), y - 0.1 * k * math.sin(q1)) for k in range(4))
            occ[a, b] = d < 0.05
    return occ


def forward_kinematics(q):
    angle, pos = 0.0, np.zeros(2)
    for link, joint in zip(LINKS, q):
        angle += joint
        pos = pos + link * np.array([math.cos(angle), math.sin(angle)])
    return pos, angle


class ReachTargets(Dataset):
    def __init__(self, n, seed=3):
        self.q0 = np.random.default_rng(seed).normal(size=(n, len(LINKS)))
        self.spread = np.abs(self.q0).max(1)

    def __len__(self):
        return len(self.q0)

    def __getitem__(self, i):
        occ = self_collision_map(330)
        res = len(occ)
        rng = np.random.default_rng(i)
        q = self.q0[i].copy()
        path = []
        for _ in range(24):
            trial = q + rng.normal(scale=0.05, size=q.shape)
            a, b = (int((v / (2 * math.pi) % 1.0) * res) % res for v in trial[:2])
            if not occ[a, b]:
                q = trial
            pos, angle = forward_kinematics(q)
            path.append([pos[0], pos[1], math.sin(angle), math.cos(angle)])
        return torch.tensor(np.mean(path, 0), dtype=torch.float32), torch.tensor(q, dtype=torch.float32)


class Curriculum:
    def __init__(self, dataset, stages):
        self.dataset = dataset
        order = np.argsort(dataset.spread)
        self.pools = [order[: max(128, int(len(order) * (s + 1) / stages))] for s in range(stages)]

    def stage_loader(self, stage, rng):
        chosen = rng.choice(self.pools[stage], 96, replace=False)
        return DataLoader(Subset(self.dataset, chosen.tolist()), batch_size=24, shuffle=True,
                          num_workers=2, persistent_workers=True)


class IKNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, len(LINKS)))

    def forward(self, x):
        return self.net(x)


def run(stages=14, passes=2):
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    curriculum = Curriculum(ReachTargets(1200), stages)
    net = IKNet()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for stage in range(stages):
        loader = curriculum.stage_loader(stage, rng)
        losses = []
        for _ in range(passes):
            for goal, q in loader:
                loss = (1 - torch.cos(net(goal) - q)).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
        print(f"stage {stage:2d}  pool {len(curriculum.pools[stage]):5d}  loss {np.mean(losses):.4f}", flush=True)


if __name__ == "__main__":
    run()
