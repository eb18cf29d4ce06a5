# cause: copy-on-write-growth
# arguments: --epochs 4
"""Graph property regression on synthetic molecules."""
import argparse
import random
import time

import torch
import torch.nn as nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Atom:
    __slots__ = ("element", "charge", "position", "bonds")

    def __init__(self, element, charge, position):
        self.element, self.charge, self.position, self.bonds = element, charge, position, []


class Bond:
    __slots__ = ("other", "order", "length")

    def __init__(self, other, order, length):
        self.other, self.order, self.length = other, order, length


class Molecule:
    def __init__(self, rng, n_atoms):
        self.atoms = [Atom(rng.randrange(12), rng.gauss(0, 1), (rng.random(), rng.random(), rng.random())) for _ in range(n_atoms)]
        for i in range(1, n_atoms):
            j = rng.randrange(max(0, i - 6), i)
            self.atoms[i].bonds.append(Bond(j, rng.randrange(1, 4), 1 + rng.random()))
        self.energy = sum(a.charge for a in self.atoms) / n_atoms


class Library(Dataset):
    """All molecules of one synthesis campaign."""

    def __init__(self, seed, count, n_atoms):
        rng = random.Random(seed)
        self.molecules = [Molecule(rng, n_atoms) for _ in range(count)]

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, i):
        mol = self.molecules[i]
        nodes, src, dst, weight = [], [], [], []
        for k, atom in enumerate(mol.atoms):
            x, y, z = atom.position
            nodes.append((atom.element / 12.0, atom.charge, x, y, z))
            for bond in atom.bonds:
                src.append(k)
                dst.append(bond.other)
                weight.append(bond.order / bond.length)
        return torch.tensor(nodes), torch.tensor([src, dst]), torch.tensor(weight), mol.energy


def merge(samples):
    """Disjoint union of the graphs of a batch."""
    nodes, edges, weights, owner, base = [], [], [], [], 0
    for g, (x, e, w, _) in enumerate(samples):
        nodes.append(x)
        edges.append(e + base)
        weights.append(w)
        owner.append(torch.full((len(x),), g))
        base += len(x)
    y = torch.tensor([s[3] for s in samples])
    return torch.cat(nodes), torch.cat(edges, 1), torch.cat(weights), torch.cat(owner), y


class GNN(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp, self.msg, self.out = nn.Linear(5, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x, e, w, owner, n):
        h = torch.relu(self.inp(x))
        for _ in range(2):
            m = torch.zeros_like(h).index_add_(0, e[1], self.msg(h)[e[0]] * w[:, None])
            h = torch.relu(h + m)
        return self.out(torch.zeros(n, h.shape[1]).index_add_(0, owner, h)).squeeze(1) / 300


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--campaigns", type=int, default=3)
    ap.add_argument("--molecules", type=int, default=420)
    ap.add_argument("--atoms", type=int, default=330)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    data = ConcatDataset([Library(s, args.molecules, args.atoms) for s in range(args.campaigns)])
    loader = DataLoader(data, batch_size=12, shuffle=True, collate_fn=merge, num_workers=args.workers, persistent_workers=True)
    model = GNN(24)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = float("inf")
    for epoch in range(args.epochs):
        t, losses = time.time(), []
        for x, e, w, owner, y in loader:
            loss = (model(x, e, w, owner, len(y)) - y).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        best = min(best, sum(losses) / len(losses))
        print(f"epoch {epoch}: mse {sum(losses) / len(losses):.4f} best {best:.4f} in {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
