# cause: transform-bound
"""Signature verification: a pair of pen traces is aligned by dynamic time warping before it is embedded."""
import math
import random
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Args:
    writers: int = 30
    pairs: int = 1300
    length: int = 150
    band: int = 45
    batch: int = 10
    workers: int = 2


def trace(writer, take, length):
    r = random.Random(writer)
    amps = [(r.uniform(0.5, 2), r.uniform(1, 5), r.uniform(0, 6)) for _ in range(4)]
    wob = random.Random(writer * 997 + take)
    speed = wob.uniform(0.9, 1.1)
    points = []
    for k in range(length):
        t = (k / length) ** speed
        points.append((sum(a * math.sin(f * t * 6 + p) for a, f, p in amps) + wob.gauss(0, 0.05),
                       sum(a * math.cos(f * t * 5 + p) for a, f, p in amps) + wob.gauss(0, 0.05)))
    return points


class Warp:
    """Sakoe-Chiba banded alignment, returns the cost and the path."""

    def __init__(self, band):
        self.band = band

    def __call__(self, a, b):
        n, m, far = len(a), len(b), float("inf")
        previous = [0.0] + [far] * m
        back = []
        for i in range(1, n + 1):
            ax, ay = a[i - 1]
            row, moves = [far] * (m + 1), bytearray(m + 1)
            for j in range(max(1, i - self.band), min(m, i + self.band) + 1):
                bx, by = b[j - 1]
                best, move = previous[j - 1], 0
                if previous[j] < best:
                    best, move = previous[j], 1
                if row[j - 1] < best:
                    best, move = row[j - 1], 2
                row[j] = best + math.hypot(ax - bx, ay - by)
                moves[j] = move
            back.append(moves)
            previous = row
        path, i, j = [], n, m
        while i > 0 and j > 0:
            path.append((i - 1, j - 1))
            move = back[i - 1][j]
            i, j = (i - 1, j - 1) if move == 0 else (i - 1, j) if move == 1 else (i, j - 1)
        return previous[m], path[::-1]


class Pairs(Dataset):
    def __init__(self, args):
        self.args, self.warp = args, Warp(args.band)

    def __len__(self):
        return self.args.pairs

    def __getitem__(self, i):
        r = random.Random(i)
        same = i % 2
        w = r.randrange(self.args.writers)
        other = w if same else (w + 1 + r.randrange(self.args.writers - 1)) % self.args.writers
        a, b = trace(w, r.randrange(9), self.args.length), trace(other, 10 + r.randrange(9), self.args.length)
        cost, path = self.warp(a, b)
        gaps = [math.hypot(a[p][0] - b[q][0], a[p][1] - b[q][1]) for p, q in path]
        gaps.sort()
        picks = [gaps[k * (len(gaps) - 1) // 30] for k in range(31)]
        return torch.tensor(picks + [cost / len(path)]), torch.tensor(float(same))


def main(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Pairs(args), args.batch, shuffle=True, num_workers=args.workers)
    net = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    began = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 12 == 0:
            print(f"step {step}: {loss.item():.4f} after {time.time() - began:.1f}s", flush=True)
    print(f"{len(loader) * args.batch / (time.time() - began):.0f} pairs/s")


if __name__ == "__main__":
    main(Args())
