# cause: copy-on-write-growth
"""DeepWalk style embeddings of a citation graph; the adjacency is a plain dict of neighbour lists."""
import math
import random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Hyper(NamedTuple):
    papers: int = 450_000
    cites: int = 12
    walk: int = 30
    walks_per_item: int = 12
    items: int = 8_000
    window: int = 4
    dim: int = 16
    batch: int = 16
    workers: int = 2


def citation_graph(h: Hyper, seed=0):
    r = random.Random(seed)
    adj = {}
    for p in range(h.papers):
        base = p + 70_000
        adj[p] = [(base + int(r.random() * 140_000)) % h.papers for _ in range(h.cites)]
    return adj


class WalkDataset(Dataset):
    def __init__(self, adj, h: Hyper):
        self.adj, self.h = adj, h

    def __len__(self):
        return self.h.items

    def walk(self, start):
        path = [start]
        while len(path) < self.h.walk:
            near = self.adj[path[-1]]
            best = max(random.sample(near, 3), key=lambda q: math.sin(q))
            path.append(best)
        return path

    def __getitem__(self, i):
        starts = [random.randrange(self.h.papers) for _ in range(self.h.walks_per_item)]
        return torch.tensor([self.walk(s) for s in starts])


def pairs(walks, window):
    centre, context = [], []
    for off in range(1, window + 1):
        centre.append(walks[:, :-off].flatten())
        context.append(walks[:, off:].flatten())
    return torch.cat(centre), torch.cat(context)


class SkipGram(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.inp = nn.Embedding(2048, h.dim)
        self.out = nn.Embedding(2048, h.dim)

    def forward(self, c, o):
        c, o = self.inp(c % 2048), self.out(o % 2048)
        neg = self.out(torch.randint(0, 2048, (len(c),)))
        return -(F.logsigmoid((c * o).sum(1)) + F.logsigmoid(-(c * neg).sum(1))).mean()


def main(h=Hyper()):
    torch.manual_seed(0)
    adj = citation_graph(h)
    loader = DataLoader(WalkDataset(adj, h), batch_size=h.batch, num_workers=h.workers, collate_fn=torch.cat, persistent_workers=True)
    model = SkipGram(h)
    opt = torch.optim.SGD(model.parameters(), 0.5)
    for epoch in range(2):
        for step, walks in enumerate(loader):
            loss = model(*pairs(walks, h.window))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 100 == 0:
                print(f"epoch {epoch} {step:4d}/{len(loader)} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
