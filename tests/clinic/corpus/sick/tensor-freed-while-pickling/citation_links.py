# cause: tensor-freed-while-pickling
"""Link prediction on a citation graph with frozen text embeddings."""
import argparse

import networkx as nx
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class EmbeddingTable:
    """float32 in the driver, half precision on the wire: nodes x dim gets large on the real graph."""

    def __init__(self, n, dim, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(n, dim, generator=g)

    def __getitem__(self, idx):
        return self.weight[idx]

    def __getstate__(self):
        return {"half": self.weight.half(), "shape": tuple(self.weight.shape)}

    def __setstate__(self, state):
        self.weight = state["half"].float().view(state["shape"])


class LinkPairs(Dataset):
    def __init__(self, graph, table, pairs, hops=2):
        self.adj = {v: np.fromiter(graph[v], dtype=np.int64) for v in graph}
        self.edges = np.array(graph.edges)
        self.table, self.pairs, self.hops = table, pairs, hops
        self.n = graph.number_of_nodes()

    def __len__(self):
        return self.pairs

    def neighbourhood(self, v, rng):
        seen, frontier = {v}, [v]
        for _ in range(self.hops):
            nxt = []
            for u in frontier:
                nb = self.adj[u]
                nxt.extend(rng.choice(nb, min(8, len(nb)), replace=False).tolist() if len(nb) else [])
            frontier = [u for u in nxt if u not in seen]
            seen.update(frontier)
        return torch.tensor(sorted(seen))

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        if i % 2:
            a, b = self.edges[rng.integers(len(self.edges))]
        else:
            a, b = rng.integers(0, self.n, 2)
        na, nb = self.neighbourhood(int(a), rng), self.neighbourhood(int(b), rng)
        shared = np.intersect1d(na.numpy(), nb.numpy()).size
        return self.table[na].mean(0), self.table[nb].mean(0), float(shared), float(i % 2)


class LinkHead(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * dim + 1, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, a, b, shared):
        return self.net(torch.cat([a * b, (a - b).abs(), shared[:, None].float().log1p()], 1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nodes", type=int, default=3000)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--context", default="spawn")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    graph = nx.barabasi_albert_graph(args.nodes, 4, seed=1)
    ds = LinkPairs(graph, EmbeddingTable(args.nodes, args.dim), pairs=4000)
    loader = DataLoader(ds, batch_size=50, shuffle=True, num_workers=2, persistent_workers=True,
                        multiprocessing_context=args.context)
    head = LinkHead(args.dim)
    opt = torch.optim.Adam(head.parameters(), 1e-3)
    for epoch in range(args.epochs):
        right = 0
        for a, b, shared, y in loader:
            out = head(a, b, shared)
            loss = F.binary_cross_entropy_with_logits(out, y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += int(((out > 0) == (y > 0.5)).sum())
        print(f"epoch {epoch} acc {right / len(ds):.3f}", flush=True)


if __name__ == "__main__":
    main()
