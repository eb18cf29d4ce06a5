# limits: nofile=256
"""Contact order of toy lattice proteins. Ragged chains of a batch travel in one packed block with offsets."""
import random
import typing as t

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOVES = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]


class Packed(t.NamedTuple):
    rows: torch.Tensor        # residue type, x, y, z, contacts
    lengths: torch.Tensor
    order: torch.Tensor

    def chains(self):
        return self.rows.split(self.lengths.tolist())


def fold(seed):
    r = random.Random(seed)
    n = r.randint(30, 70)
    pos, used = [(0, 0, 0)], {(0, 0, 0)}
    while len(pos) < n:
        free = [p for p in (tuple(a + b for a, b in zip(pos[-1], m)) for m in MOVES) if p not in used]
        if not free:
            pos, used = [(0, 0, 0)], {(0, 0, 0)}
            continue
        # prefer compact growth
        free.sort(key=lambda p: sum((p[0] + m[0], p[1] + m[1], p[2] + m[2]) in used for m in MOVES))
        pick = free[-1] if r.random() < 0.6 else r.choice(free)
        pos.append(pick)
        used.add(pick)
    where = {p: i for i, p in enumerate(pos)}
    rows, sep, pairs = [], 0, 0
    for i, p in enumerate(pos):
        near = [where[q] for q in (tuple(a + b for a, b in zip(p, m)) for m in MOVES) if q in where]
        far = [j for j in near if abs(i - j) > 1]
        sep += sum(abs(i - j) for j in far)
        pairs += len(far)
        rows.append([float(len(far) > 1), *map(float, p), float(len(far))])
    return rows, sep / max(1, pairs) / n


class Lattice(Dataset):
    def __init__(self, first, n):
        self.first, self.n = first, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return min((fold(7 * (self.first + i) + k) for k in range(5)), key=lambda f: f[1])   # best of five folds


def pack(items):
    lengths = [len(rows) for rows, _ in items]
    return Packed(torch.tensor([row for rows, _ in items for row in rows]), torch.tensor(lengths),
                  torch.tensor([o for _, o in items]))


class ChainNet(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(5, d), nn.ReLU(), nn.Linear(d, d))
        self.g = nn.Linear(d, 1)

    def forward(self, packed):
        h = self.f(packed.rows)
        return self.g(torch.stack([c.mean(0) for c in h.split(packed.lengths.tolist())])).squeeze(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loaders = {"train": DataLoader(Lattice(0, 1600), 40, shuffle=True, num_workers=2, collate_fn=pack,
                                   persistent_workers=True),
               "test": DataLoader(Lattice(10**6, 400), 40, num_workers=2, collate_fn=pack, persistent_workers=True)}
    net = ChainNet()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(3):
        line = []
        for part, loader in loaders.items():
            tot = 0.0
            for batch in loader:
                loss = nn.functional.l1_loss(net(batch), batch.order)
                if part == "train":
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
                tot += loss.item()
            line.append(f"{part} {tot / len(loader):.4f}")
        print(epoch, *line, flush=True)


if __name__ == "__main__":
    main()
