"""Formation energy of periodic crystals; ragged graphs are packed into flat tensors per batch."""
import itertools
import random
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class GraphBatch(NamedTuple):
    z: torch.Tensor
    edges: torch.Tensor
    dist: torch.Tensor
    owner: torch.Tensor
    energy: torch.Tensor


class Crystals(Dataset):
    images = np.array(list(itertools.product((-1, 0, 1), repeat=3)))

    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        atoms = 10
        cell = np.eye(3) * rng.uniform(4, 7) + rng.normal(scale=0.2, size=(3, 3))
        frac = rng.uniform(size=(atoms, 3))
        for _ in range(16):         # push atoms apart before the neighbour list is taken
            delta = frac[:, None] - frac[None]
            delta -= np.round(delta)
            d = np.linalg.norm(delta @ cell, axis=-1) + np.eye(atoms) * 9
            frac = (frac + 0.02 * (delta / d[..., None] ** 2).sum(1) / atoms) % 1
        pos = frac @ cell
        shifted = pos[None] + (self.images @ cell)[:, None]
        d = np.linalg.norm(pos[:, None, None] - shifted[None], axis=-1)
        a, _, b = np.nonzero((d < 4.0) & (d > 1e-6))
        z = rng.integers(1, 20, atoms)
        energy = float(np.mean(z) / 20 - len(a) / 400)
        return z, np.stack([a, b]), d[(d < 4.0) & (d > 1e-6)], energy


def pack(items):
    counts = [len(z) for z, *_ in items]
    start = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return GraphBatch(torch.from_numpy(np.concatenate([z for z, *_ in items])),
                      torch.from_numpy(np.concatenate([e + s for (_, e, _, _), s in zip(items, start)], 1)),
                      torch.from_numpy(np.concatenate([d for _, _, d, _ in items])).float(),
                      torch.from_numpy(np.repeat(np.arange(len(items)), counts)),
                      torch.tensor([e for *_, e in items]))


class CGNet(nn.Module):
    def __init__(self, dim=32, layers=2):
        super().__init__()
        self.emb = nn.Embedding(20, dim)
        self.msg = nn.ModuleList(nn.Sequential(nn.Linear(2 * dim + 8, dim), nn.SiLU(), nn.Linear(dim, dim)) for _ in range(layers))
        self.out = nn.Linear(dim, 1)
        self.register_buffer("mu", torch.linspace(1, 4, 8))

    def forward(self, g):
        h = self.emb(g.z)
        rbf = torch.exp(-((g.dist[:, None] - self.mu) ** 2) / 0.3)
        for m in self.msg:
            src, dst = g.edges
            h = h + torch.zeros_like(h).index_add_(0, dst, m(torch.cat([h[src], h[dst], rbf], 1))) / 10
        e = torch.zeros(len(g.energy)).index_add_(0, g.owner, self.out(h).squeeze(1))
        return e / torch.bincount(g.owner, minlength=len(g.energy))


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    build = lambda n, seed, **kw: DataLoader(Crystals(n, seed), 20, num_workers=2, collate_fn=pack, persistent_workers=True, **kw)
    train, val = build(1200, 1, shuffle=True), build(200, 2)
    net = CGNet()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(3):
        for g in train:
            loss = nn.functional.l1_loss(net(g), g.energy)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            mae = np.mean([nn.functional.l1_loss(net(g), g.energy).item() for g in val])
        print(f"epoch {epoch} train {loss.item():.4f} val mae {mae:.4f}", flush=True)


if __name__ == "__main__":
    main()
