# cause: copy-on-write-growth
"""Node classification on a citation graph with sampled two-hop neighbourhoods (GraphSAGE flavour)."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler


@dataclass
class Settings:
    papers: int = 600_000
    cites: int = 14
    classes: int = 8
    width: int = 24
    batch: int = 64
    hops: tuple = (12, 8)
    steps: int = 100
    workers: int = 2
    seed: int = 11


class Graph:
    def __init__(self, s):
        rng = np.random.default_rng(s.seed)
        self.topic = rng.integers(0, s.classes, s.papers).astype(np.int8)
        self.table = rng.standard_normal((s.classes, s.width)).astype(np.float32)
        self.links = []
        for lo in range(0, s.papers, 50_000):
            n = min(50_000, s.papers - lo)
            self.links.extend(rng.integers(0, s.papers, (n, s.cites)).tolist())

    def features(self, nodes):
        nodes = np.asarray(nodes)
        base = self.table[self.topic[nodes]]
        wiggle = np.sin(nodes[..., None] * np.arange(1, base.shape[-1] + 1) * 0.37).astype(np.float32)
        return base + 0.8 * wiggle


class NeighbourhoodBatcher:
    """Turns a list of seed papers into fixed-fan-out tensors."""

    def __init__(self, graph, hops):
        self.graph = graph
        self.hops = hops

    def expand(self, nodes, fan):
        links = self.graph.links
        picks = torch.randint(0, 1 << 30, (len(nodes), fan)).tolist()
        out = []
        for node, row in zip(nodes, picks):
            near = links[node]
            size = len(near)
            out.extend([near[r % size] for r in row])
        return out

    def __call__(self, seeds):
        first = self.expand(seeds, self.hops[0])
        second = self.expand(first, self.hops[1])
        n = len(seeds)
        return {
            "self": torch.from_numpy(self.graph.features(seeds)),
            "hop1": torch.from_numpy(self.graph.features(first)).view(n, self.hops[0], -1),
            "hop2": torch.from_numpy(self.graph.features(second)).view(n, self.hops[0], self.hops[1], -1).mean(2),
            "label": torch.from_numpy(self.graph.topic[np.asarray(seeds)].astype(np.int64)),
        }


class Sage(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.lift = nn.Linear(2 * width, 64)
        self.join = nn.Linear(64 + width, 64)
        self.head = nn.Linear(64, classes)

    def forward(self, batch):
        near = F.relu(self.lift(torch.cat([batch["hop1"], batch["hop2"]], -1))).mean(1)
        return self.head(F.relu(self.join(torch.cat([near, batch["self"]], -1))))


class Meter:
    def __init__(self):
        self.right = self.seen = 0

    def update(self, logits, label):
        self.right += (logits.argmax(1) == label).sum().item()
        self.seen += len(label)

    @property
    def value(self):
        return self.right / max(1, self.seen)


def fit(s):
    torch.manual_seed(s.seed)
    torch.set_num_threads(1)
    graph = Graph(s)
    seeds = range(s.papers)
    sampler = RandomSampler(seeds, replacement=True, num_samples=s.steps * s.batch)
    loader = DataLoader(seeds, batch_size=s.batch, sampler=sampler, num_workers=s.workers,
                        collate_fn=NeighbourhoodBatcher(graph, s.hops))
    net = Sage(s.width, s.classes)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    meter, began = Meter(), time.perf_counter()
    for step, batch in enumerate(loader, 1):
        logits = net(batch)
        loss = F.cross_entropy(logits, batch["label"])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        meter.update(logits, batch["label"])
        time.sleep(0.03)  # stands for the device
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f} acc {meter.value:.3f} {time.perf_counter() - began:.1f}s", flush=True)


if __name__ == "__main__":
    fit(Settings())
