# cause: fd-exhausted
# also: many-small-tensors
# limits: nofile=256
import argparse
import random
import typing as t

import networkx as nx
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ATOMS = ["C", "N", "O", "S", "F"]


class Molecule(t.NamedTuple):
    atoms: torch.Tensor
    bonds: torch.Tensor
    order: torch.Tensor
    rings: torch.Tensor
    dist: torch.Tensor
    target: torch.Tensor


def build(seed: int) -> Molecule:
    r = random.Random(seed)
    g = nx.random_labeled_tree(r.randint(12, 26), seed=seed)
    nodes = list(g)
    for _ in range(r.randint(1, 3)):
        a, b = r.sample(nodes, 2)
        g.add_edge(a, b)
    atoms = [r.randrange(len(ATOMS)) for _ in nodes]
    edges = list(g.edges)
    cycles = nx.cycle_basis(g)
    in_ring = {v for c in cycles for v in c}
    spl = dict(nx.all_pairs_shortest_path_length(g))
    dist = torch.tensor([[spl[a][b] for b in nodes] for a in nodes], dtype=torch.uint8)
    energy = sum(atoms) * 0.3 - 0.8 * len(cycles) + 0.02 * float(dist.float().mean())
    return Molecule(
        atoms=torch.tensor(atoms),
        bonds=torch.tensor(edges).T.contiguous(),
        order=torch.tensor([1 + (a + b) % 2 for a, b in edges]),
        rings=torch.tensor([v in in_ring for v in nodes]),
        dist=dist,
        target=torch.tensor(energy),
    )


class MoleculeSet(Dataset):
    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return build(self.first + i)


class Net(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.atom = nn.Embedding(len(ATOMS), d)
        self.msg = nn.Linear(d + 1, d)
        self.out = nn.Sequential(nn.Linear(d + 2, d), nn.SiLU(), nn.Linear(d, 1))

    def one(self, m: Molecule):
        h = self.atom(m.atoms)
        src, dst = m.bonds
        for _ in range(2):
            msg = self.msg(torch.cat([h[src], m.order[:, None].float()], -1))
            h = torch.relu(h.index_add(0, dst, msg))
        extra = torch.stack([m.rings.float().mean(), m.dist.float().mean()])
        return self.out(torch.cat([h.mean(0), extra])).squeeze(-1)

    def forward(self, mols):
        return torch.stack([self.one(m) for m in mols])


def loaders(args):
    common = dict(batch_size=args.batch_size, num_workers=args.workers, collate_fn=list)
    return {
        "train": DataLoader(MoleculeSet(0, args.train), shuffle=True, **common),
        "valid": DataLoader(MoleculeSet(1_000_000, args.valid), **common),
    }


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--train", type=int, default=600)
    ap.add_argument("--valid", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=40)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, parts = Net(), loaders(args)
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(args.epochs):
        scores = {}
        for name, loader in parts.items():
            err = []
            for mols in loader:
                y = torch.stack([m.target for m in mols])
                loss = nn.functional.l1_loss(net(mols), y)
                if name == "train":
                    opt.zero_grad()
                    loss.backward()
                    opt.step()
                err.append(loss.item())
            scores[name] = round(sum(err) / len(err), 4)
        print(epoch, scores, flush=True)


if __name__ == "__main__":
    main()
