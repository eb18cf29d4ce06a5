# cause: many-small-tensors
"""Aqueous solubility regression with a small message passing network over random molecular graphs."""
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

EPOCHS = 3
BATCH = 48
ELEMENTS = ["C", "N", "O", "F", "S", "Cl"]
ELECTRONEGATIVITY = np.array([2.55, 3.04, 3.44, 3.98, 2.58, 3.16], np.float32)


class Molecule:
    """A graph in the fields that the network reads."""

    __slots__ = ("atoms", "charge", "degree", "bonds", "order", "ring", "label")

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, torch.as_tensor(value))

    def __getstate__(self):
        return [getattr(self, name) for name in self.__slots__]

    def __setstate__(self, state):
        for name, value in zip(self.__slots__, state):
            setattr(self, name, value)


class RandomMolecules(Dataset):
    def __init__(self, count, seed=0):
        self.seeds = np.random.default_rng(seed).integers(0, 2**31, count)

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, index):
        rng = np.random.default_rng(self.seeds[index])
        n = int(rng.integers(9, 24))
        parent = np.array([rng.integers(max(0, i - 3), i) for i in range(1, n)])
        bonds = np.stack([np.arange(1, n), parent])
        rings = int(rng.integers(0, 3))
        if rings:
            bonds = np.concatenate([bonds, rng.integers(0, n, (2, rings))], 1)
        atoms = rng.choice(len(ELEMENTS), n, p=[0.68, 0.1, 0.14, 0.03, 0.03, 0.02])
        order = rng.choice([1.0, 1.5, 2.0], bonds.shape[1]).astype(np.float32)
        bonds = np.concatenate([bonds, bonds[::-1]], 1)
        degree = np.bincount(bonds[0], minlength=n).astype(np.float32)
        pull = ELECTRONEGATIVITY[atoms]
        charge = np.zeros(n, np.float32)
        np.add.at(charge, bonds[0], (pull[bonds[0]] - pull[bonds[1]]) * 0.1)
        label = 0.3 * (atoms == 2).sum() - 0.1 * n - 0.4 * rings + 0.1 * rng.standard_normal()
        return Molecule(atoms=atoms, charge=charge, degree=degree, bonds=bonds,
                        order=np.concatenate([order, order]), ring=rings, label=np.float32(label))


def merge(molecules):
    """Disjoint union of graphs."""
    offset = torch.tensor([0] + [len(m.atoms) for m in molecules]).cumsum(0)
    return {
        "atoms": torch.cat([m.atoms for m in molecules]),
        "scalars": torch.stack([torch.cat([m.charge for m in molecules]), torch.cat([m.degree for m in molecules])], 1),
        "bonds": torch.cat([m.bonds + o for m, o in zip(molecules, offset)], 1),
        "order": torch.cat([m.order for m in molecules]),
        "owner": torch.repeat_interleave(torch.arange(len(molecules)), offset.diff()),
        "ring": torch.stack([m.ring for m in molecules]).float(),
        "label": torch.stack([m.label for m in molecules]),
    }


class MoleculeLoader(DataLoader):
    """Hands over lists of molecules, so that metrics and the model can each merge what they need."""

    def __init__(self, dataset, **options):
        super().__init__(dataset, collate_fn=self.keep, **options)

    @staticmethod
    def keep(molecules):
        return molecules


class MessagePassing(nn.Module):
    def __init__(self, width=32, rounds=2):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS), width)
        self.scalars = nn.Linear(2, width)
        self.message = nn.ModuleList(nn.Linear(width + 1, width) for _ in range(rounds))
        self.update = nn.ModuleList(nn.GRUCell(width, width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(width + 1, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, g):
        h = self.embed(g["atoms"]) + self.scalars(g["scalars"])
        source, target = g["bonds"]
        for message, update in zip(self.message, self.update):
            m = torch.relu(message(torch.cat([h[source], g["order"][:, None]], 1)))
            h = update(torch.zeros_like(h).index_add(0, target, m), h)
        pooled = torch.zeros(len(g["ring"]), h.shape[1]).index_add(0, g["owner"], h)
        return self.readout(torch.cat([pooled, g["ring"][:, None]], 1)).squeeze(1)


molecules = RandomMolecules(1800)
cut = int(0.85 * len(molecules))
train_loader = MoleculeLoader(Subset(molecules, range(cut)), batch_size=BATCH, shuffle=True, num_workers=2,
                              persistent_workers=True, drop_last=True)
val_loader = MoleculeLoader(Subset(molecules, range(cut, len(molecules))), batch_size=BATCH, num_workers=2,
                            persistent_workers=True)
torch.manual_seed(0)
model = MessagePassing()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train_loader))

for epoch in range(EPOCHS):
    started, squared, seen = time.time(), 0.0, 0
    model.train()
    for batch in train_loader:
        graph = merge(batch)
        error = (model(graph) - graph["label"]).pow(2)
        optimizer.zero_grad()
        error.mean().backward()
        optimizer.step()
        scheduler.step()
        squared += error.sum().item()
        seen += len(batch)
    rate = seen / (time.time() - started)
    model.eval()
    with torch.no_grad():
        misses = [(model(g) - g["label"]).abs() for g in map(merge, val_loader)]
    print(f"epoch {epoch} rmse {math.sqrt(squared / seen):.3f} val mae {torch.cat(misses).mean():.3f} "
          f"{rate:.0f} molecules/s", flush=True)
