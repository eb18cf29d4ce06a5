# cause: tensor-freed-while-pickling
# also: slow-worker-start
"""Node classification on a citation graph by neighbourhood sampling (GraphSAGE style, two hops)."""
import dataclasses
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Settings:
    nodes: int = 4000
    classes: int = 6
    features: int = 48
    fanout: tuple = (12, 8)
    batch_size: int = 48
    epochs: int = 4
    workers: int = 2
    start: str = "spawn"


class Adjacency:
    """Neighbour lists. In memory a list of arrays; shipped elsewhere in compressed-row form."""

    def __init__(self, lists):
        self.lists = lists

    @classmethod
    def random(cls, labels, rng, degree=20):
        n = len(labels)
        by_class = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
        lists = []
        for v in range(n):
            same = rng.choice(by_class[labels[v]], degree * 2 // 3)
            lists.append(np.unique(np.concatenate([same, rng.integers(0, n, degree // 3)])))
        return cls(lists)

    def __getstate__(self):
        bounds = np.cumsum([0] + [len(x) for x in self.lists])
        return {"bounds": torch.from_numpy(bounds), "heads": torch.from_numpy(np.concatenate(self.lists))}

    def __setstate__(self, state):
        heads, bounds = state["heads"].numpy(), state["bounds"].tolist()
        self.lists = [heads[a:b].copy() for a, b in zip(bounds, bounds[1:])]

    def __len__(self):
        return len(self.lists)

    def neighbours(self, v):
        return self.lists[v]


class NeighbourhoodDataset(Dataset):
    def __init__(self, adjacency, features, labels, nodes, fanout):
        self.adjacency, self.features, self.labels = adjacency, features, labels
        self.nodes, self.fanout = nodes, fanout

    def __len__(self):
        return len(self.nodes)

    def _sample(self, v, k):
        around = self.adjacency.neighbours(v)
        return around[np.random.randint(0, len(around), k)]

    def __getitem__(self, i):
        root = int(self.nodes[i])
        first = self._sample(root, self.fanout[0])
        second = np.stack([self._sample(int(u), self.fanout[1]) for u in first])
        # structural features: common neighbours of the root and each of the sampled nodes
        mine = self.adjacency.neighbours(root)
        overlap = np.array([len(np.intersect1d(mine, self.adjacency.neighbours(int(u)))) for u in second.ravel()], np.float32)
        feats = self.features
        return (torch.from_numpy(feats[root]), torch.from_numpy(feats[first]), torch.from_numpy(feats[second]),
                torch.from_numpy(overlap.reshape(second.shape)), int(self.labels[root]))


class Sage(nn.Module):
    def __init__(self, s, hidden=48):
        super().__init__()
        self.inner = nn.Linear(2 * s.features, hidden)
        self.outer = nn.Linear(s.features + hidden, hidden)
        self.head = nn.Linear(hidden, s.classes)

    def forward(self, root, first, second, overlap):
        weight = torch.softmax(overlap, -1).unsqueeze(-1)
        hop = torch.relu(self.inner(torch.cat([first, (second * weight).sum(2)], -1)))
        return self.head(torch.relu(self.outer(torch.cat([root, hop.mean(1)], -1))))


def make_graph(s):
    rng = np.random.default_rng(31)
    labels = rng.integers(0, s.classes, s.nodes)
    centre = rng.normal(size=(s.classes, s.features))
    features = (0.3 * centre[labels] + rng.normal(size=(s.nodes, s.features))).astype(np.float32)
    return Adjacency.random(labels, rng), features, labels, rng.permutation(s.nodes)


class Run:
    def __init__(self, s):
        self.s = s
        adjacency, features, labels, order = make_graph(s)
        make = lambda nodes: NeighbourhoodDataset(adjacency, features, labels, nodes, s.fanout)
        extra = dict(multiprocessing_context=s.start, persistent_workers=True) if s.workers else {}
        self.train = DataLoader(make(order[:2600]), s.batch_size, shuffle=True, num_workers=s.workers, **extra)
        self.val = DataLoader(make(order[2600:3200]), s.batch_size, num_workers=s.workers, **extra)
        self.model = Sage(s)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def epoch(self):
        for *inputs, y in self.train:
            loss = nn.functional.cross_entropy(self.model(*inputs), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        with torch.no_grad():
            return np.mean([(self.model(*inputs).argmax(1) == y).float().mean().item() for *inputs, y in self.val])

    def __call__(self):
        for k in range(self.s.epochs):
            began = time.time()
            accuracy = self.epoch()
            print(f"epoch {k} accuracy {accuracy:.3f} {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    Run(Settings())()
