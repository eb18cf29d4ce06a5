# cause: result-not-picklable
"""Solubility of small molecules with a message-passing network on random molecular graphs."""
import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

ELEMENTS = {"C": 4, "N": 3, "O": 2, "F": 1, "S": 2, "Cl": 1}
SYMBOLS = list(ELEMENTS)


@dataclass
class Graph:
    name: str
    atoms: torch.Tensor
    bonds: torch.Tensor
    distance: torch.Tensor
    target: float


@dataclass
class GraphBatch:
    atoms: torch.Tensor
    bonds: torch.Tensor
    owner: torch.Tensor
    rings: torch.Tensor
    target: torch.Tensor
    names: Any = field(default_factory=tuple)

    @classmethod
    def join(cls, graphs):
        starts, atoms, bonds, owner = {}, [], [], []
        total = 0
        for k, g in enumerate(graphs):
            starts[g.name] = total
            atoms.append(g.atoms)
            bonds.append(g.bonds + total)
            owner.append(torch.full((len(g.atoms),), k))
            total += len(g.atoms)
        far = torch.stack([g.distance for g in graphs])
        return cls(torch.cat(atoms), torch.cat(bonds, 1), torch.cat(owner), far, torch.tensor([g.target for g in graphs]), starts.keys())


class Molecules(Dataset):
    """Random trees with ring closures; the structure of a molecule depends on its index alone."""

    def __init__(self, count, seed):
        self.seeds = np.random.default_rng(seed).integers(0, 2**31, count)

    def __len__(self):
        return len(self.seeds)

    def grow(self, g):
        n = int(g.integers(14, 40))
        kinds = g.choice(len(SYMBOLS), n, p=[0.6, 0.12, 0.14, 0.05, 0.05, 0.04])
        free = np.array([ELEMENTS[SYMBOLS[k]] for k in kinds])
        free[0] = 4
        edges = []
        for a in range(1, n):
            open_ = np.flatnonzero(free[:a] > 0)
            b = int(g.choice(open_)) if len(open_) else a - 1
            edges.append((a, b))
            free[a] -= 1
            free[b] -= 1
        for _ in range(int(g.integers(0, 4))):
            a, b = g.integers(0, n, 2)
            if a != b:
                edges.append((int(a), int(b)))
        return kinds, edges

    def shortest_paths(self, n, edges):
        d = np.full((n, n), 99.0)
        np.fill_diagonal(d, 0)
        for a, b in edges:
            d[a, b] = d[b, a] = 1
        for k in range(n):
            for i in range(n):
                d[i] = np.minimum(d[i], d[i, k] + d[k])
        return d

    def __getitem__(self, i):
        g = np.random.default_rng(self.seeds[i])
        kinds, edges = self.grow(g)
        d = self.shortest_paths(len(kinds), edges)
        histogram = np.histogram(d, bins=np.arange(0, 26))[0] / d.size
        polar = np.isin(kinds, [1, 2]).mean()
        target = 2 * polar - 0.05 * len(kinds) - 0.1 * d.max() + 0.05 * g.standard_normal()
        both = np.array(edges + [(b, a) for a, b in edges]).T
        return Graph(f"mol{i:05d}", torch.from_numpy(kinds), torch.from_numpy(both), torch.from_numpy(histogram.astype(np.float32)), float(target))


class MessagePassing(nn.Module):
    def __init__(self, width=32, rounds=3):
        super().__init__()
        self.emb = nn.Embedding(len(SYMBOLS), width)
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.out = nn.Sequential(nn.Linear(width + 25, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, b):
        h = self.emb(b.atoms)
        for layer in self.layers:
            m = torch.zeros_like(h).index_add_(0, b.bonds[1], h[b.bonds[0]])
            h = h + torch.relu(layer(torch.cat([h, m], 1)))
        pooled = torch.zeros(len(b.target), h.shape[1]).index_add_(0, b.owner, h)
        return self.out(torch.cat([pooled, b.rings], 1)).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--molecules", type=int, default=1600)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    data = Molecules(a.molecules, seed=8)
    order = torch.randperm(len(data))
    common = dict(batch_size=32, num_workers=a.workers, collate_fn=GraphBatch.join, persistent_workers=True)
    train = DataLoader(Subset(data, order[200:].tolist()), shuffle=True, **common)
    val = DataLoader(Subset(data, order[:200].tolist()), **common)
    model = MessagePassing()
    opt = torch.optim.AdamW(model.parameters(), 2e-3)
    for epoch in range(a.epochs):
        t, losses = time.time(), []
        for batch in train:
            loss = nn.functional.huber_loss(model(batch), batch.target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        worst = ("", 0.0)
        with torch.no_grad():
            for batch in val:
                for name, miss in zip(batch.names, (model(batch) - batch.target).abs().tolist()):
                    worst = max(worst, (name, miss), key=lambda p: p[1])
        print(f"epoch {epoch} loss {np.mean(losses):.4f}, worst molecule {worst[0]} off by {worst[1]:.2f}, {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
