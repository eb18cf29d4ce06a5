# cause: many-small-tensors
# also: workers-not-worth-it
"""Travel-time regression over small road graphs."""
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class Graph(NamedTuple):
    nodes: torch.Tensor
    edges: torch.Tensor
    lengths: torch.Tensor
    speed: torch.Tensor
    target: torch.Tensor


@dataclass
class HP:
    graphs: int = 1100
    batch: int = 40
    epochs: int = 1
    workers: int = 2
    width: int = 24


class Roads(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        k = int(rng.integers(8, 20))
        xy = rng.random((k, 2), dtype=np.float32)
        d = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
        np.fill_diagonal(d, np.inf)
        near = np.argsort(d, axis=1)[:, :3]
        src = np.repeat(np.arange(k), 3)
        dst = near.ravel()
        length = d[src, dst].astype(np.float32)
        speed = rng.uniform(0.5, 1.5, len(src)).astype(np.float32)
        return Graph(torch.from_numpy(xy), torch.from_numpy(np.stack([src, dst])), torch.from_numpy(length),
                     torch.from_numpy(speed), torch.tensor(float((length / speed).mean())))


class GraphBatcher:
    """Graphs differ in size, so they stay a list."""

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, graphs):
        return sorted(graphs[:self.limit], key=lambda g: len(g.nodes))


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.node, self.edge, self.out = nn.Linear(2, width), nn.Linear(2, width), nn.Linear(width, 1)

    def forward(self, graphs):
        preds = []
        for g in graphs:
            h = self.node(g.nodes)
            m = self.edge(torch.stack([g.lengths, g.speed], 1)) + h[g.edges[0]]
            preds.append(self.out(torch.relu(m)).mean())
        return torch.stack(preds)


def main():
    hp = HP()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, test = random_split(Roads(hp.graphs), [0.95, 0.05])
    batcher = GraphBatcher(hp.batch)
    loader = DataLoader(train, hp.batch, shuffle=True, collate_fn=batcher, num_workers=hp.workers)
    model = Net(hp.width)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(hp.epochs):
        for step, graphs in enumerate(loader):
            y = torch.stack([g.target for g in graphs])
            loss = (model(graphs) - y).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print("step", step, "loss %.4f" % loss.item(), flush=True)
    with torch.no_grad():
        err = [float((model([g]) - g.target).abs()) for g in (test[i] for i in range(len(test)))]
    print("test error %.4f" % np.mean(err))


if __name__ == "__main__":
    main()
