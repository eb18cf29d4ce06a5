# cause: copy-on-write-growth
# also: worker-out-of-memory
# limits: memory=1G
"""Next-basket recommendation from a raw click log held in memory."""
import random
from collections import namedtuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

Event = namedtuple("Event", "shop item price stamp")


def read_log(n):
    rnd = random.Random(0)
    return [Event(f"shop-{k % 977:04d}-{k}", 1000 + int(4000 * rnd.random() ** 2), rnd.random() * 80, 1.6e9 + k) for k in range(n)]


class Sessions(Dataset):
    """A session samples what the other customers did within the same stretch of the log."""

    span = 4000

    def __init__(self, log, sessions, hops=900):
        self.log, self.sessions, self.hops = log, sessions, hops

    def __len__(self):
        return self.sessions

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        spend = np.zeros(64, np.float32)
        recent, last = 0, 0.0
        start = int(rng.integers(0, len(self.log) - self.span))
        for k in rng.integers(start, start + self.span, self.hops).tolist():
            ev = self.log[k]
            spend[hash(ev.shop) % 64] += ev.price
            if ev.stamp > last:
                recent, last = ev.item, ev.stamp
        return torch.from_numpy(spend / self.hops), recent - 1000


class Recommender(nn.Module):
    def __init__(self, items=4001):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        self.items = nn.Linear(32, items)

    def forward(self, x):
        return self.items(self.body(x))


def train(loader, epochs):
    model = Recommender()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for e in range(epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 40 == 0:
                print(f"epoch {e} step {step} loss {loss.item():.3f}", flush=True)
    return model


def main():
    torch.manual_seed(0)
    log = read_log(1_400_000)
    print(f"{len(log):,} events", flush=True)
    loader = DataLoader(Sessions(log, 2400), batch_size=40, shuffle=True, num_workers=2, persistent_workers=True)
    train(loader, 2)


if __name__ == "__main__":
    main()
