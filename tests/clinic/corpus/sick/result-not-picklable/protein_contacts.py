# cause: result-not-picklable
import argparse

import networkx as nx
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def contact_graph(seed, n_res=90):
    rng = np.random.default_rng(seed)
    coords = np.cumsum(rng.standard_normal((n_res, 3)), 0)
    d = np.linalg.norm(coords[:, None] - coords[None], axis=-1)
    g = nx.Graph()
    g.add_nodes_from((i, {"kind": "ACDEFGHIKL"[int(rng.integers(10))]}) for i in range(n_res))
    g.add_edges_from(zip(*np.nonzero(np.triu(d < 3.0, 1))))
    return g, float(d.max() < 22)


class ContactGraphs(Dataset):
    """Node features: degree, clustering, core number; label: compact or extended fold."""

    def __init__(self, count, offset=0):
        self.items = [contact_graph(offset + k) for k in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        g, y = self.items[i]
        deg = dict(g.degree())
        clust = nx.clustering(g)
        core = nx.core_number(g)
        feats = torch.tensor([[deg[n], clust[n], core[n]] for n in g], dtype=torch.float32)
        edges = torch.tensor(list(g.edges()), dtype=torch.long).T
        kinds = nx.get_node_attributes(g, "kind")
        return feats, edges, kinds, y


class GraphBatch(dict):
    __getattr__ = dict.__getitem__


def collate(samples):
    feats, edges, kinds, ys = zip(*samples)
    starts = np.cumsum([0] + [len(f) for f in feats[:-1]])
    residues = {}
    for start, k in zip(starts, kinds):
        for node, letter in k.items():
            residues.setdefault(letter, []).append(int(start + node))
    return GraphBatch(
        x=torch.cat(feats),
        edge_index=torch.cat([e + s for e, s in zip(edges, starts)], 1),
        graph=torch.cat([torch.full((len(f),), g) for g, f in enumerate(feats)]),
        residue_kinds=residues.keys(),
        residues={k: torch.tensor(v) for k, v in residues.items()},
        y=torch.tensor(ys),
    )


class GNN(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.kind = nn.ParameterDict({c: nn.Parameter(torch.randn(3) * 0.1) for c in "ACDEFGHIKL"})
        self.a, self.b, self.out = nn.Linear(6, hidden), nn.Linear(2 * hidden, hidden), nn.Linear(hidden, 1)

    def hop(self, h, e):
        return torch.cat([h, torch.zeros_like(h).index_add(0, e[0], h[e[1]]).index_add(0, e[1], h[e[0]])], 1)

    def forward(self, b):
        x = b.x / b.x.mean(0)
        for kind in b.residue_kinds:
            x = x.index_add(0, b.residues[kind], self.kind[kind].expand(len(b.residues[kind]), 3))
        h = torch.relu(self.a(self.hop(x, b.edge_index)))
        h = torch.relu(self.b(self.hop(h, b.edge_index)))
        n = int(b.graph.max()) + 1
        pooled = torch.zeros(n, h.shape[1]).index_add(0, b.graph, h)
        return self.out(pooled / 90).squeeze(1)


def main(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--graphs", type=int, default=240)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("-j", type=int, default=2, dest="workers")
    a = p.parse_args(argv)
    torch.manual_seed(0)
    make = lambda ds, **kw: DataLoader(ds, batch_size=12, collate_fn=collate, num_workers=a.workers, **kw)
    train, test = make(ContactGraphs(a.graphs), shuffle=True), make(ContactGraphs(48, 10_000))
    net = GNN()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(a.epochs):
        for b in train:
            loss = nn.functional.binary_cross_entropy_with_logits(net(b), b.y)
            opt.zero_grad(); loss.backward(); opt.step()
        with torch.no_grad():
            acc = sum(int(((net(b) > 0) == (b.y > 0.5)).sum()) for b in test) / 48
        print(f"epoch {epoch} loss {loss.item():.3f} test acc {acc:.2f}", flush=True)


if __name__ == "__main__":
    main()
