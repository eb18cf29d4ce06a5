"""Click-through prediction with a factorisation machine; the table fits in memory and batches are slices of it."""
import time
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

FIELDS = {"site": 40, "slot": 8, "campaign": 60, "device": 5, "hour": 24, "region": 30}


@dataclass
class Run:
    impressions: int = 240_000
    batch: int = 512
    epochs: int = 6
    rank: int = 12
    lr: float = 5e-3
    probe_every: int = 150


@contextmanager
def clocked(label):
    begin = time.perf_counter()
    yield
    print(f"{label}: {time.perf_counter() - begin:.2f} s", flush=True)


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    columns = np.stack([rng.integers(0, size, n) for size in FIELDS.values()], 1)
    world = np.random.default_rng(0)
    factors = [world.normal(0, 0.6, (size, 4)) for size in FIELDS.values()]
    latent = np.stack([f[columns[:, k]] for k, f in enumerate(factors)])
    total = latent.sum(0)
    logit = 0.5 * ((total ** 2).sum(1) - (latent ** 2).sum((0, 2))) - 1.5
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit))
    return torch.from_numpy(columns), torch.from_numpy(clicked.astype(np.float32))


class Impressions(Dataset):
    """Indexed by a whole list of rows at a time."""

    def __init__(self, n, seed):
        self.columns, self.clicked = simulate(n, seed)

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.columns[rows], self.clicked[rows]


def batches(data, size, shuffle):
    order = RandomSampler(data) if shuffle else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(order, size, drop_last=shuffle), batch_size=None, num_workers=0)


class FactorisationMachine(nn.Module):
    def __init__(self, rank):
        super().__init__()
        sizes = torch.tensor([0, *FIELDS.values()])
        self.register_buffer("shift", sizes.cumsum(0)[:-1])
        self.linear = nn.Embedding(sum(FIELDS.values()), 1)
        self.factor = nn.Embedding(sum(FIELDS.values()), rank)
        self.deep = nn.Sequential(nn.Linear(rank * len(FIELDS), 64), nn.ReLU(), nn.Linear(64, 1))
        nn.init.normal_(self.factor.weight, std=0.05)

    def forward(self, columns):
        ids = columns + self.shift
        v = self.factor(ids)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        return self.linear(ids).sum((1, 2)) + pairs + self.deep(v.flatten(1)).squeeze(1)


def log_loss(model, loader):
    with torch.no_grad():
        parts = [(nn.functional.binary_cross_entropy_with_logits(model(c), y, reduction="sum").item(), len(y)) for c, y in loader]
    return sum(a for a, _ in parts) / sum(b for _, b in parts)


def probe(model, loader):
    """A quick look at one held-out batch during the epoch."""
    columns, clicked = next(iter(loader))
    with torch.no_grad():
        return nn.functional.binary_cross_entropy_with_logits(model(columns), clicked).item()


def main(run=Run()):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    train = batches(Impressions(run.impressions, 1), run.batch, True)
    held = batches(Impressions(run.impressions // 8, 2), run.batch * 4, False)
    model = FactorisationMachine(run.rank)
    optimiser = torch.optim.Adam(model.parameters(), lr=run.lr)
    step = 0
    for epoch in range(run.epochs):
        with clocked(f"epoch {epoch}"):
            for columns, clicked in train:
                loss = nn.functional.binary_cross_entropy_with_logits(model(columns), clicked)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                step += 1
                if step % run.probe_every == 0:
                    print(f"  step {step} train {loss.item():.4f} probe {probe(model, held):.4f}")
        print(f"  held out {log_loss(model, held):.4f}", flush=True)


if __name__ == "__main__":
    main()
