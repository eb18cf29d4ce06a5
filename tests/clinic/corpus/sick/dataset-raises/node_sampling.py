# cause: dataset-raises
"""Node classification with sampled ego graphs; hubs are visited more often."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Graph:
    def __init__(self, nodes, edges, feats, seed=0):
        rng = np.random.default_rng(seed)
        self.n = nodes
        src, dst = rng.integers(0, nodes, (2, edges))
        order = np.argsort(src, kind="stable")
        self.dst = dst[order]
        self.ptr = np.searchsorted(src[order], np.arange(nodes + 1))
        self.label = rng.integers(0, 4, nodes)
        self.x = (rng.normal(size=(nodes, feats)) + self.label[:, None]).astype(np.float32)

    def neighbours(self, v):
        return self.dst[self.ptr[v]:self.ptr[v + 1]]

    def degree(self):
        return np.bincount(self.dst, minlength=self.n)


class HubSampler(Sampler):
    """Draws positions with a probability that grows with the degree."""

    def __init__(self, degree, draws):
        self.p = torch.from_numpy(np.sqrt(degree + 1.0))
        self.draws = draws

    def __len__(self):
        return self.draws

    def __iter__(self):
        yield from torch.multinomial(self.p, self.draws, replacement=True).tolist()


class EgoGraphs(Dataset):
    def __init__(self, graph, nodes, fanout):
        self.graph, self.nodes, self.fanout = graph, nodes, fanout

    def __len__(self):
        return len(self.nodes)

    def __getitem__(self, i):
        v = self.nodes[i]
        near = self.graph.neighbours(v)
        if len(near) == 0:
            near = np.array([v])
        pick = near[torch.randint(len(near), (self.fanout,)).numpy()]
        time.sleep(0.001)
        return torch.from_numpy(self.graph.x[v]), torch.from_numpy(self.graph.x[pick]), int(self.graph.label[v])


class Sage(nn.Module):
    def __init__(self, d, width=32):
        super().__init__()
        self.own, self.near = nn.Linear(d, width), nn.Linear(d, width)
        self.out = nn.Linear(width, 4)

    def forward(self, v, near):
        return self.out(torch.relu(self.own(v) + self.near(near.mean(1))))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nodes", type=int, default=3000)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--batch", type=int, default=24)
    a = ap.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    g = Graph(a.nodes, a.nodes * 6, 16)
    cut = int(a.nodes * 0.98)
    train = EgoGraphs(g, list(range(cut)), fanout=5)
    loader = DataLoader(train, batch_size=a.batch, sampler=HubSampler(g.degree(), a.steps * a.batch), num_workers=a.workers)
    net = Sage(16)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    good = seen = 0
    for k, (v, near, y) in enumerate(loader, 1):
        out = net(v, near)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        good += (out.argmax(1) == y).sum().item()
        seen += len(y)
        if k % 10 == 0:
            print(f"step {k} loss {loss.item():.3f} acc {good / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
