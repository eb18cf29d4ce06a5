# cause: workers-restarted
"""Prototypical network: many short rounds of episodes."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Glyphs(Dataset):
    def __init__(self, classes, per_class):
        rng = np.random.default_rng(1)
        self.strokes = rng.uniform(2, 26, (classes, 5, 2))
        self.per_class = per_class

    def __len__(self):
        return len(self.strokes) * self.per_class

    def __getitem__(self, i):
        time.sleep(0.002)
        img = torch.zeros(28, 28)
        pts = torch.from_numpy(self.strokes[i // self.per_class]) + torch.randn(5, 2) * 0.7
        for (a, b), (c, d) in zip(pts[:-1].tolist(), pts[1:].tolist()):
            for t in range(12):
                y, x = a + (c - a) * t / 11, b + (d - b) * t / 11
                img[int(min(max(y, 0), 27)), int(min(max(x, 0), 27))] = 1.0
        return img, i // self.per_class


class Episodes(Sampler):
    def __init__(self, data, ways, shots, count):
        self.data, self.ways, self.shots, self.count = data, ways, shots, count

    def __len__(self):
        return self.count

    def __iter__(self):
        n_classes = len(self.data.strokes)
        for _ in range(self.count):
            picked = torch.randperm(n_classes)[:self.ways]
            yield [int(c) * self.data.per_class + int(k) for c in picked for k in torch.randperm(self.data.per_class)[:self.shots]]


def prototypes_loss(net, x, ways, shots):
    z = net(x[:, None]).view(ways, shots, -1)
    protos, queries = z[:, :2].mean(1), z[:, 2:].reshape(-1, z.shape[-1])
    target = torch.arange(ways).repeat_interleave(shots - 2)
    return nn.functional.cross_entropy(-torch.cdist(queries, protos), target)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=50)
    ap.add_argument("--episodes", type=int, default=2)
    ap.add_argument("--ways", type=int, default=4)
    ap.add_argument("--shots", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    data = Glyphs(40, 12)
    loader = DataLoader(data, batch_sampler=Episodes(data, a.ways, a.shots, a.episodes), num_workers=a.workers)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(576, 32))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    history = []
    for r in range(a.rounds):
        for x, _ in loader:
            loss = prototypes_loss(net, x, a.ways, a.shots)
            opt.zero_grad()
            loss.backward()
            opt.step()
        history.append(loss.item())
        if (r + 1) % 10 == 0:
            print("round %d, mean of last 10: %.3f" % (r + 1, sum(history[-10:]) / 10), flush=True)


if __name__ == "__main__":
    main()
