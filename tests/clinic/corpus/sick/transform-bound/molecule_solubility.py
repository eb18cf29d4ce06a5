# cause: transform-bound
"""Aqueous solubility regression from molecular graphs with circular fingerprints and an MLP."""
import argparse
import logging
import random
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("solubility")
ELEMENTS = ("C", "N", "O", "S", "F", "Cl")
WEIGHTS = {"C": 12.0, "N": 14.0, "O": 16.0, "S": 32.1, "F": 19.0, "Cl": 35.5}


@dataclass
class Molecule:
    atoms: np.ndarray
    bonds: np.ndarray
    neighbours: dict = field(default=None, repr=False)

    def adjacency(self):
        table = {i: [] for i in range(len(self.atoms))}
        for a, b, order in self.bonds.tolist():
            table[a].append((b, order))
            table[b].append((a, order))
        return table

    @property
    def fingerprint(self):
        """Extended-connectivity fingerprint, radius 4, folded to 1024 bits, plus path descriptors."""
        table = self.adjacency()
        ids = [hash((int(z), len(table[i]))) for i, z in enumerate(self.atoms)]
        bits = np.zeros(1024, dtype=np.float32)
        for _ in range(4):
            fresh = []
            for i in range(len(ids)):
                env = sorted((order, ids[j]) for j, order in table[i])
                fresh.append(hash((ids[i], tuple(env))))
            ids = fresh
            for value in ids:
                bits[value % 1024] = 1.0
        return np.concatenate([bits, self.path_profile(table)])

    def path_profile(self, table, longest=7):
        counts = np.zeros(64, dtype=np.float32)

        def walk(node, seen, code, depth):
            counts[code % 64] += 1
            if depth == longest:
                return
            for nxt, order in table[node]:
                if nxt not in seen:
                    walk(nxt, seen | {nxt}, code * 7 + order + int(self.atoms[nxt]), depth + 1)

        for start in table:
            walk(start, frozenset([start]), int(self.atoms[start]), 0)
        return np.log1p(counts)


def make_molecule(rng):
    n = rng.randint(22, 30)
    atoms = np.array([rng.choices(range(6), weights=[12, 3, 3, 1, 1, 1])[0] for _ in range(n)], dtype=np.int8)
    bonds = [(i, rng.randrange(max(0, i - 4), i), rng.choice([1, 1, 1, 2])) for i in range(1, n)]
    bonds += [(i, i - 5, 1) for i in range(6, n, 4)]
    return Molecule(atoms, np.array(bonds, dtype=np.int16))


class SolubilitySet(Dataset):
    def __init__(self, size, seed=3):
        rng = random.Random(seed)
        self.molecules = [make_molecule(rng) for _ in range(size)]
        polar = np.array([np.isin(m.atoms, (1, 2)).mean() for m in self.molecules])
        mass = np.array([sum(WEIGHTS[ELEMENTS[z]] for z in m.atoms) for m in self.molecules])
        self.target = (6 * polar - mass / 150 + np.random.default_rng(seed).normal(0, 0.1, size)).astype(np.float32)

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, index):
        return torch.from_numpy(self.molecules[index].fingerprint), self.target[index]


def build_loaders(args):
    data = SolubilitySet(args.size)
    order = np.random.default_rng(0).permutation(len(data))
    cut = int(0.85 * len(data))
    common = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0)
    train = DataLoader(Subset(data, order[:cut]), shuffle=True, drop_last=True, **common)
    valid = DataLoader(Subset(data, order[cut:]), **common)
    return train, valid


def evaluate(model, loader):
    model.eval()
    errors = []
    with torch.no_grad():
        for x, y in loader:
            errors.append((model(x).squeeze(1) - y).abs())
    model.train()
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1100)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, valid = build_loaders(args)
    model = nn.Sequential(nn.Linear(1088, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        begin, seen, total = time.time(), 0, 0.0
        for x, y in train:
            loss = nn.functional.huber_loss(model(x).squeeze(1), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen += len(y)
            total += loss.item() * len(y)
        log.info("epoch %d loss %.4f mae %.3f (%.1f samples/s)", epoch, total / seen, evaluate(model, valid), seen / (time.time() - begin))


if __name__ == "__main__":
    main()
