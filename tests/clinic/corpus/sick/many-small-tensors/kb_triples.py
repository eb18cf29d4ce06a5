# cause: many-small-tensors
# also: copy-on-write-growth
"""Entity typing on a knowledge base: sampled neighbourhoods, one edge list per relation."""
import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RELATIONS = ["born_in", "lives_in", "works_for", "knows", "wrote", "owns", "part_of", "near", "cites", "likes", "made", "led"]


class KnowledgeBase:
    def __init__(self, entities, degree):
        rng = np.random.default_rng(0)
        heads = np.repeat(np.arange(entities), degree)
        tails = (heads + rng.integers(1, 5000, len(heads))) % entities
        relations = rng.integers(0, len(RELATIONS), len(heads))
        self.edges = {}
        for h, r, t in zip(heads.tolist(), relations.tolist(), tails.tolist()):
            self.edges.setdefault(h, []).append((r, t))

    def __len__(self):
        return len(self.edges)

    def neighbourhood(self, root, hops, width):
        found, seen = [], [root]
        frontier = [root]
        for _ in range(hops):
            reached = []
            for node in frontier:
                for r, t in random.sample(self.edges[node], width):
                    found.append((node, r, t))
                    reached.append(t)
            seen += reached
            frontier = reached
        return found, seen


class Neighbourhoods(Dataset):
    def __init__(self, kb, roots, hops=3, width=4):
        self.kb, self.roots, self.hops, self.width = kb, roots, hops, width

    def __len__(self):
        return len(self.roots)

    def __getitem__(self, i):
        root = self.roots[i]
        triples, nodes = self.kb.neighbourhood(root, self.hops, self.width)
        local = {n: k for k, n in enumerate(dict.fromkeys(nodes))}
        edges = {name: [] for name in RELATIONS}
        for h, r, t in triples:
            edges[RELATIONS[r]].append((local[h], local[t]))
        return {
            "nodes": torch.tensor(list(local)),
            "edges": {name: torch.tensor(pairs, dtype=torch.long).reshape(-1, 2) for name, pairs in edges.items()},
            "kind": root % 3,
        }


class Typer(nn.Module):
    def __init__(self, buckets=997, width=12):
        super().__init__()
        self.buckets = buckets
        self.embed = nn.Embedding(buckets, width)
        self.weight = nn.ParameterDict({name: torch.full((width,), 0.5) for name in RELATIONS})
        self.out = nn.Linear(width, 3)

    def forward(self, graph):
        h = self.embed(graph["nodes"] % self.buckets)
        pooled = h[0]
        for name, pairs in graph["edges"].items():
            pooled = pooled + (h[pairs[:, 1]] * self.weight[name]).sum(0) / 50
        return self.out(pooled)


def as_list(samples):
    return samples


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--entities", type=int, default=90_000)
    p.add_argument("--degree", type=int, default=8)
    p.add_argument("--roots", type=int, default=1000)
    p.add_argument("--batch", type=int, default=20)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    kb = KnowledgeBase(a.entities, a.degree)
    roots = np.linspace(0, len(kb) - 1, a.roots).astype(int).tolist()
    loader = DataLoader(Neighbourhoods(kb, roots), a.batch, num_workers=a.workers, collate_fn=as_list)
    net = Typer()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    began = time.time()
    for step, graphs in enumerate(loader):
        y = torch.tensor([g["kind"] for g in graphs])
        loss = nn.functional.cross_entropy(torch.stack([net(g) for g in graphs]), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step}/{len(loader)} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    print(f"{len(roots) / (time.time() - began):.0f} neighbourhoods/s")


if __name__ == "__main__":
    main()
