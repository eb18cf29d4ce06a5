# limits: nofile=256
"""Graph regression; a batch is packed into a few flat tensors with offsets."""
import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RandomTrees(Dataset):
    def __init__(self, n, kinds=6):
        self.n, self.kinds = n, kinds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = random.Random(i)
        size = r.randint(10, 30)
        nodes = [r.randrange(self.kinds) for _ in range(size)]
        edges = [(k, r.randrange(k)) for k in range(1, size)]
        time.sleep(0.003)  # conformer service
        return nodes, edges, float(sum(nodes)) / 30


class Packed:
    FIELDS = ("nodes", "edges", "owner", "target")

    def __init__(self, samples):
        shift, nodes, edges, owner = 0, [], [], []
        for g, (n, e, _) in enumerate(samples):
            nodes += n
            edges += [(a + shift, b + shift) for a, b in e]
            owner += [g] * len(n)
            shift += len(n)
        self.nodes = torch.tensor(nodes)
        self.edges = torch.tensor(edges).t().contiguous()
        self.owner = torch.tensor(owner)
        self.target = torch.tensor([s[2] for s in samples])


class TreeNet(nn.Module):
    def __init__(self, kinds=6, width=96, rounds=3):
        super().__init__()
        self.emb = nn.Embedding(kinds, width)
        self.msg = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.upd = nn.GRUCell(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, b):
        h = self.emb(b.nodes)
        src = torch.cat([b.edges[0], b.edges[1]])
        dst = torch.cat([b.edges[1], b.edges[0]])
        for m in self.msg:
            h = self.upd(torch.zeros_like(h).index_add(0, dst, torch.relu(m(h[src]))), h)
        per = self.out(h).squeeze(1)
        return torch.zeros(len(b.target)).index_add(0, b.owner, per)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--graphs", type=int, default=600)
    ap.add_argument("--batch", type=int, default=30)
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(RandomTrees(a.graphs), a.batch, shuffle=True, num_workers=2, collate_fn=Packed, persistent_workers=True)
    net = TreeNet()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    history = []
    for epoch in range(a.epochs):
        total = 0.0
        for b in loader:
            loss = nn.functional.mse_loss(net(b), b.target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        history.append(total / len(loader))
        print(f"epoch {epoch} mse {history[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
