# cause: transform-bound
"""Same-writer verification of pen strokes: elastic alignment cost between the members of a batch."""
import argparse
import math
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Strokes(Dataset):
    def __init__(self, strokes, writers, points):
        self.strokes, self.writers, self.points = strokes, writers, points

    def __len__(self):
        return self.strokes

    def __getitem__(self, i):
        r = random.Random(i)
        writer = i % self.writers
        x = y = 0.0
        track = []
        for k in range(self.points + r.randrange(8)):
            x += math.cos(k * (0.2 + 0.05 * writer)) + r.gauss(0, 0.1)
            y += math.sin(k * (0.2 + 0.05 * writer)) + r.gauss(0, 0.1)
            track.append((x, y))
        return writer, track


def elastic_cost(a, b, band):
    """Dynamic time warping with a band, row by row."""
    inf = float("inf")
    previous = [0.0] + [inf] * len(b)
    for i, (ax, ay) in enumerate(a, 1):
        row = [inf] * (len(b) + 1)
        for j in range(max(1, i - band), min(len(b), i + band) + 1):
            bx, by = b[j - 1]
            step = abs(ax - bx) + abs(ay - by)
            row[j] = step + min(previous[j], previous[j - 1], row[j - 1])
        previous = row
    best = min(v for v in previous if v < inf)
    return best / (len(a) + len(b))


class PairBatch:
    """Collate: aligns every stroke with its neighbours and returns one row per pair."""

    def __init__(self, band, neighbours):
        self.band, self.neighbours = band, neighbours

    def __call__(self, samples):
        rows, same = [], []
        for i, (writer, track) in enumerate(samples):
            for k in range(1, self.neighbours + 1):
                other, second = samples[(i + k) % len(samples)]
                forward = elastic_cost(track, second, self.band)
                backward = elastic_cost(track[::-1], second[::-1], self.band)
                rows.append([forward, backward, len(track) / 50, len(second) / 50])
                same.append(float(writer == other))
        return torch.tensor(rows), torch.tensor(same)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--strokes", type=int, default=960)
    p.add_argument("--writers", type=int, default=3)
    p.add_argument("--points", type=int, default=56)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Strokes(a.strokes, a.writers, a.points), a.batch, shuffle=True, num_workers=a.workers,
                        collate_fn=PairBatch(band=10, neighbours=6))
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    began = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 8 == 0:
            print(f"step {step}/{len(loader)} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    print(f"{a.strokes / (time.time() - began):.0f} strokes/s")


if __name__ == "__main__":
    main()
