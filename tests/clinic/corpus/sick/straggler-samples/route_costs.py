# cause: straggler-samples
# also: not-fed-fast-enough
"""Learns the cost of a delivery tour from its stops; labels come from a small solver."""
import math
import random
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class P:
    tours: int = 480
    batch: int = 6
    workers: int = 2
    device_seconds: float = 0.045


def tour_length(pts, order):
    return sum(math.dist(pts[order[k]], pts[order[k - 1]]) for k in range(len(order)))


def two_opt(pts):
    order = list(range(len(pts)))
    best, improved, sweeps = tour_length(pts, order), True, 0
    while improved and sweeps < 3:
        improved, sweeps = False, sweeps + 1
        for i in range(1, len(pts) - 1):
            for j in range(i + 1, len(pts)):
                a, b, c, d = order[i - 1], order[i], order[j], order[(j + 1) % len(pts)]
                gain = math.dist(pts[a], pts[b]) + math.dist(pts[c], pts[d]) - math.dist(pts[a], pts[c]) - math.dist(pts[b], pts[d])
                if gain > 1e-9:
                    order[i:j + 1] = reversed(order[i:j + 1])
                    best -= gain
                    improved = True
    return best


class Tours(Dataset):
    def __init__(self, n):
        rng = random.Random(12)
        self.sizes = [rng.randint(5, 11) for _ in range(n)]
        for k in range(17, n, 80):
            self.sizes[k] = 900          # the hub depots

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        rng = random.Random(i)
        pts = [(rng.random(), rng.random()) for _ in range(self.sizes[i])]
        cost = two_opt(pts)
        t = torch.tensor(pts)
        feats = torch.cat([t.mean(0), t.std(0), t.amin(0), t.amax(0), torch.tensor([len(pts) / 100.0])])
        return feats, torch.tensor(cost)


def main():
    cfg = P()
    torch.set_num_threads(1)
    loader = DataLoader(Tours(cfg.tours), batch_size=cfg.batch, num_workers=cfg.workers)
    net = nn.Sequential(nn.Linear(9, 64), nn.GELU(), nn.Linear(64, 1), nn.Flatten(0))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    slow = 0.0
    for step, (x, y) in enumerate(loader):
        began = time.perf_counter()
        loss = (net(x) - y).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(cfg.device_seconds)      # ensemble members train elsewhere
        slow += time.perf_counter() - began
        if step % 20 == 0:
            print(f"step {step} mae {loss.item():.3f} busy {slow:.1f}s", flush=True)


if __name__ == "__main__":
    main()
