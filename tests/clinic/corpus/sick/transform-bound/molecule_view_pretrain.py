# cause: transform-bound
"""Contrastive pretraining of a small encoder for peptides: two views of the same molecule should land close together.

Atoms carry a type, bonds are undirected; what the encoder sees of the structure are topological distances.
"""
import argparse
import random
import time
from collections import deque
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ATOM_TYPES = 12
MAX_ATOMS = 120
MAX_DISTANCE = 14


@dataclass(frozen=True)
class Molecule:
    atoms: tuple
    bonds: tuple


def random_molecule(rng):
    size = rng.randint(90, MAX_ATOMS)
    atoms = tuple(rng.choices(range(1, ATOM_TYPES), k=size))
    bonds = [(i, max(0, i - rng.randint(1, 4))) for i in range(1, size)]
    for _ in range(rng.randint(2, 5)):
        a = rng.randrange(size - 6)
        bonds.append((a, a + rng.choice((4, 5))))
    return Molecule(atoms, tuple(bonds))


class MoleculeSet(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        self.molecules = [random_molecule(rng) for _ in range(size)]

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, index):
        return self.molecules[index]


class PairBatcher:
    """Turns a list of molecules into two padded views."""

    def __init__(self, drop=0.06, mask=0.1):
        self.drop, self.mask = drop, mask

    def distances(self, size, bonds):
        neighbours = [[] for _ in range(size)]
        for a, b in bonds:
            neighbours[a].append(b)
            neighbours[b].append(a)
        table = torch.full((MAX_ATOMS, MAX_ATOMS), MAX_DISTANCE + 1, dtype=torch.uint8)
        rows = []
        for source in range(size):
            seen = {source: 0}
            queue = deque([source])
            while queue:
                node = queue.popleft()
                for other in neighbours[node]:
                    if other not in seen:
                        seen[other] = seen[node] + 1
                        queue.append(other)
            rows.append([min(seen.get(t, MAX_DISTANCE), MAX_DISTANCE) for t in range(size)])
        table[:size, :size] = torch.tensor(rows, dtype=torch.uint8)
        return table

    def view(self, molecule):
        bonds = [b for b in molecule.bonds if random.random() > self.drop]
        atoms = [0 if random.random() < self.mask else a for a in molecule.atoms]
        types = torch.zeros(MAX_ATOMS, dtype=torch.long)
        types[: len(atoms)] = torch.tensor(atoms)
        valid = torch.zeros(MAX_ATOMS, dtype=torch.bool)
        valid[: len(atoms)] = True
        return types, valid, self.distances(len(atoms), bonds)

    def __call__(self, molecules):
        first = [self.view(m) for m in molecules]
        second = [self.view(m) for m in molecules]
        return tuple(torch.stack(parts) for parts in zip(*first)), tuple(torch.stack(parts) for parts in zip(*second))


class Encoder(nn.Module):
    def __init__(self, width=32, out=32):
        super().__init__()
        self.embed = nn.Embedding(ATOM_TYPES, width)
        self.decay = nn.Parameter(torch.linspace(1.0, -1.0, MAX_DISTANCE + 2))
        self.mix = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, types, valid, distances):
        nodes = self.embed(types)
        weight = self.decay[distances.long()] * valid[:, None, :]
        context = torch.bmm(weight, nodes) / valid.sum(1).view(-1, 1, 1)
        hidden = self.mix(torch.cat([nodes, context], dim=-1)) * valid[..., None]
        return F.normalize(hidden.sum(1), dim=-1)


def info_nce(a, b, temperature=0.2):
    logits = a @ b.t() / temperature
    target = torch.arange(len(a))
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--molecules", type=int, default=480)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    loader = DataLoader(MoleculeSet(args.molecules, seed=3), batch_size=args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, collate_fn=PairBatcher(), persistent_workers=args.workers > 0)
    encoder = Encoder()
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        start, total = time.perf_counter(), 0.0
        for left, right in loader:
            loss = info_nce(encoder(*left), encoder(*right))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        seconds = time.perf_counter() - start
        print(f"epoch {epoch} loss {total / len(loader):.4f} {args.molecules / seconds:.0f} molecules/s")


if __name__ == "__main__":
    main()
