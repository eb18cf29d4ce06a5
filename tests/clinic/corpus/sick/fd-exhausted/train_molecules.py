# cause: fd-exhausted
# also: many-small-tensors
# limits: nofile=256
"""Property regression on random molecular graphs (plain message passing)."""
import argparse
import random
import typing as t

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ELEMENTS = "CNOFSP"


class Molecule(t.NamedTuple):
    atoms: torch.Tensor
    charges: torch.Tensor
    bonds: torch.Tensor
    order: torch.Tensor
    xyz: torch.Tensor
    energy: torch.Tensor


def grow(seed: int) -> str:
    """A chain with branches, in a tiny line notation:  C-N=O(2)..."""
    r = random.Random(seed)
    n = r.randint(8, 24)
    out = [r.choice(ELEMENTS)]
    for k in range(1, n):
        out.append(f"{r.choice('-=')}{r.choice(ELEMENTS)}{r.randrange(k)}")
    return ".".join(out)


def parse(text: str) -> Molecule:
    tokens = text.split(".")
    kinds, src, dst, order = [ELEMENTS.index(tokens[0])], [], [], []
    for k, tok in enumerate(tokens[1:], start=1):
        kinds.append(ELEMENTS.index(tok[1]))
        parent = int(tok[2:])
        src += [k, parent]
        dst += [parent, k]
        order += [1 + (tok[0] == "=")] * 2
    atoms = torch.tensor(kinds)
    xyz = torch.cumsum(torch.randn(len(kinds), 3), 0)
    energy = torch.tensor(sum(order) / 2 - 0.3 * sum(kinds), dtype=torch.float32)
    return Molecule(atoms, (atoms.float() - 2) / 3, torch.tensor([src, dst]), torch.tensor(order, dtype=torch.float32), xyz, energy)


class MoleculeSet(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i) -> Molecule:
        mol = parse(self.lines[i])
        spin, _ = torch.linalg.qr(torch.randn(3, 3))
        return mol._replace(xyz=mol.xyz @ spin)


def as_list(samples):
    return samples


class MPNN(nn.Module):
    def __init__(self, width=32, rounds=3):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS), width)
        self.msg = nn.Linear(width + 2, width)
        self.upd = nn.GRUCell(width, width)
        self.out = nn.Linear(width, 1)
        self.rounds = rounds

    def one(self, m: Molecule):
        h = self.embed(m.atoms) + m.charges[:, None]
        dist = (m.xyz[m.bonds[0]] - m.xyz[m.bonds[1]]).norm(dim=1)
        for _ in range(self.rounds):
            e = torch.cat([h[m.bonds[0]], m.order[:, None], dist[:, None]], 1)
            agg = torch.zeros_like(h).index_add_(0, m.bonds[1], torch.relu(self.msg(e)))
            h = self.upd(agg, h)
        return self.out(h).sum()

    def forward(self, mols):
        return torch.stack([self.one(m) for m in mols])


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--molecules", type=int, default=480)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args(argv)
    data = MoleculeSet([grow(s) for s in range(a.molecules)])
    loader = DataLoader(data, a.batch, shuffle=True, num_workers=a.workers, collate_fn=as_list)
    net = MPNN()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(2):
        acc = 0.0
        for mols in loader:
            target = torch.stack([m.energy for m in mols])
            loss = nn.functional.mse_loss(net(mols), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            acc += loss.item()
        print("epoch", epoch, "mse", round(acc / len(loader), 3), flush=True)


if __name__ == "__main__":
    main()
