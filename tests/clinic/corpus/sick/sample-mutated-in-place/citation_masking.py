# cause: sample-mutated-in-place
# also: workers-not-worth-it
# arguments: --epochs 2
"""Masked feature modelling on neighbourhoods of a citation graph."""
import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Graph:
    x: torch.Tensor
    neighbours: list
    area: np.ndarray


def build_graph(nodes, width, areas=6, seed=0):
    rng = np.random.default_rng(seed)
    area = rng.integers(0, areas, nodes)
    prototypes = rng.normal(0, 1, (areas, width))
    x = prototypes[area] + rng.normal(0, 0.7, (nodes, width)) + 3.0
    members = [np.flatnonzero(area == a) for a in range(areas)]
    neighbours = []
    for n in range(nodes):
        own = rng.choice(members[area[n]], rng.integers(4, 10))
        other = rng.integers(0, nodes, rng.integers(0, 3))
        neighbours.append(np.unique(np.concatenate([own, other])))
    return Graph(torch.from_numpy(x.astype(np.float32)), neighbours, area)


class Neighbourhoods(Dataset):
    """Two hops around a paper; the features of the paper itself are hidden and have to be told."""

    def __init__(self, graph, fanout=8, walks=30, length=8):
        self.graph = graph
        self.fanout, self.walks, self.length = fanout, walks, length
        self.mask_token = torch.zeros(graph.x.shape[1])

    def __len__(self):
        return len(self.graph.x)

    def hops(self, node):
        near = self.graph.neighbours[node][: self.fanout]
        far = np.concatenate([self.graph.neighbours[n][: self.fanout] for n in near])
        return torch.from_numpy(near), torch.from_numpy(np.unique(far))

    def visits(self, node):
        counts = {}
        for _ in range(self.walks):
            at = node
            for _ in range(self.length):
                options = self.graph.neighbours[at]
                at = int(options[torch.randint(len(options), ())])
                counts[at] = counts.get(at, 0) + 1
        total = sum(counts.values())
        return torch.tensor(list(counts)), torch.tensor([c / total for c in counts.values()])

    def __getitem__(self, node):
        near, far = self.hops(node)
        features = self.graph.x
        target = features[node].clone()
        features[node] = self.mask_token
        walked, weight = self.visits(node)
        context = torch.cat([features[near].mean(0), features[far].mean(0), (features[walked] * weight[:, None]).sum(0)])
        return context, target, int(self.graph.area[node])


def train_epoch(model, heads, loader, optimiser):
    reconstruct, classify = heads
    meter = {"reconstruction": 0.0, "area": 0.0, "target": 0.0}
    count = 0
    for context, target, area in loader:
        hidden = model(context)
        told = reconstruct(hidden)
        loss = nn.functional.mse_loss(told, target) + 0.1 * nn.functional.cross_entropy(classify(hidden), area)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        count += len(area)
        meter["reconstruction"] += nn.functional.mse_loss(told, target).item() * len(area)
        meter["area"] += (classify(hidden).argmax(1) == area).sum().item()
        meter["target"] += target.mean().item() * len(area)
    return {k: v / count for k, v in meter.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(1)
    graph = build_graph(args.nodes, args.width)
    loader = DataLoader(Neighbourhoods(graph), batch_size=20, shuffle=True, num_workers=args.workers, persistent_workers=True)
    model = nn.Sequential(nn.Linear(3 * args.width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    heads = nn.Linear(64, args.width), nn.Linear(64, 6)
    parameters = [p for module in (model, *heads) for p in module.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=3e-3)
    for epoch in range(args.epochs):
        result = train_epoch(model, heads, loader, optimiser)
        print(f"epoch {epoch} " + " ".join(f"{k} {v:.4f}" for k, v in result.items()), flush=True)
