# cause: result-not-picklable
"""Node classification on a citation graph with sampled neighbourhoods."""
import argparse
import random
import time
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class PaperGraph:
    def __init__(self, papers, fields, feat, seed):
        r = random.Random(seed)
        self.field = [r.randrange(fields) for _ in range(papers)]
        by_field = {f: [p for p in range(papers) if self.field[p] == f] for f in range(fields)}
        self.cites = []
        for p in range(papers):
            own = r.sample(by_field[self.field[p]], 8)
            other = [r.randrange(papers) for _ in range(3)]
            self.cites.append(sorted(set(own + other) - {p}))
        g = torch.Generator().manual_seed(seed)
        centres = torch.randn(fields, feat, generator=g)
        self.x = centres[torch.tensor(self.field)] + 2.5 * torch.randn(papers, feat, generator=g)
        self.year = [1990 + r.randrange(30) for _ in range(papers)]


class Ego:
    """One target paper with a two-hop neighbourhood."""

    def __init__(self, target, hops, label):
        self.target, self.hops, self.label = target, hops, label


class EgoDataset(Dataset):
    def __init__(self, graph, papers, fanout=(6, 4)):
        self.graph, self.papers, self.fanout = graph, papers, fanout

    def __len__(self):
        return len(self.papers)

    def __getitem__(self, i):
        target = self.papers[i]
        hops, frontier = [], [target]
        for k in self.fanout:
            nxt = OrderedDict()
            for p in frontier:
                near = self.graph.cites[p]
                for q in random.sample(near, min(k, len(near))):
                    nxt[q] = self.graph.year[q]
            hops.append(nxt)
            frontier = list(nxt)
        time.sleep(0.003)
        return Ego(target, hops, self.graph.field[target])


class MiniBatch:
    def __init__(self, x_self, x_hops, y, touched):
        self.x_self, self.x_hops, self.y = x_self, x_hops, y
        self.touched = touched


class Collate:
    def __init__(self, x, since=1995):
        self.x = x
        self.since = since

    def mean_of(self, hop):
        recent = [p for p, year in hop.items() if year >= self.since] or list(hop)
        return self.x[recent].mean(0)

    def __call__(self, egos):
        touched = {}
        for e in egos:
            for hop in e.hops:
                for p in hop:
                    touched[p] = touched.get(p, 0) + 1
        return MiniBatch(x_self=self.x[[e.target for e in egos]],
                         x_hops=torch.stack([torch.cat([self.mean_of(h) for h in e.hops]) for e in egos]),
                         y=torch.tensor([e.label for e in egos]), touched=touched.keys())


class Sage(nn.Module):
    def __init__(self, feat, fields):
        super().__init__()
        self.lin = nn.Sequential(nn.Linear(feat * 3, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, fields))

    def forward(self, b):
        return self.lin(torch.cat([b.x_self, b.x_hops], 1))


def fit(args):
    torch.manual_seed(args.seed)
    graph = PaperGraph(1200, 7, 64, args.seed)
    papers = list(range(1200))
    random.Random(0).shuffle(papers)
    loader = DataLoader(EgoDataset(graph, papers[:800]), batch_size=args.batch, shuffle=True, num_workers=args.workers,
                        collate_fn=Collate(graph.x), persistent_workers=True)
    model = Sage(64, 7)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    for epoch in range(args.epochs):
        coverage, hit = set(), 0
        for b in loader:
            out = model(b)
            loss = F.cross_entropy(out, b.y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            hit += (out.argmax(1) == b.y).sum().item()
            coverage.update(b.touched)
        print(f"[{epoch}] acc {hit / 800:.3f} papers touched {len(coverage)}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=9)
    fit(p.parse_args())
