# cause: copy-on-write-growth
"""Next-purchase model over shop sessions."""
import argparse
import logging
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("sessions")
CATEGORIES = ["shoes", "books", "garden", "audio", "toys", "kitchen", "travel", "sports"]


def make_events(n_users, per_user, seed):
    rng = random.Random(seed)
    for user in range(n_users):
        clock = 1_600_000_000 + rng.randrange(10_000)
        for k in range(per_user):
            clock += rng.randrange(1, 900)
            yield {"user": "u%06d" % user, "ts": clock + 0.5, "sku": "sku-%08d" % rng.randrange(10_000_000),
                   "category": CATEGORIES[rng.randrange(8)], "price": rng.random() * 90.0, "bought": rng.random() < 0.07}


class SessionLog(Dataset):
    """One sample per user: a summary of all the user's events and whether the last bought."""

    def __init__(self, cfg):
        self.per_user = cfg.events_per_user
        self.events = list(make_events(cfg.users, cfg.events_per_user, cfg.seed))
        self.index = {c: i for i, c in enumerate(CATEGORIES)}

    def __len__(self):
        return len(self.events) // self.per_user

    def _history(self, user):
        start = user * self.per_user
        return self.events[start:start + self.per_user]

    def __getitem__(self, user):
        feats = np.zeros((len(CATEGORIES), 4), dtype=np.float32)
        last = None
        for e in self._history(user):
            row = feats[self.index[e["category"]]]
            row[0] += 1
            row[1] += e["price"]
            row[2] = max(row[2], e["price"])
            if last is not None:
                row[3] += (e["ts"] - last["ts"]) / 900.0
            last = e
        label = float(last["bought"])
        return torch.from_numpy(feats.reshape(-1)) / self.per_user, torch.tensor(label)


class Tower(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def fit(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(cfg.threads)
    data = SessionLog(cfg)
    log.info("%d events of %d users", len(data.events), len(data))
    loader = DataLoader(data, batch_size=cfg.batch, shuffle=True, num_workers=cfg.workers, persistent_workers=True, drop_last=True)
    model = Tower(4 * len(CATEGORIES), cfg.width)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loss_fn = nn.BCEWithLogitsLoss()
    for epoch in range(cfg.epochs):
        t0, total = time.time(), 0.0
        for x, y in loader:
            loss = loss_fn(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.item()
        log.info("epoch %d loss %.4f (%.1f s)", epoch, total / len(loader), time.time() - t0)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=1300)
    p.add_argument("--events-per-user", type=int, default=320)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=7)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=__import__("sys").stdout)
    fit(p.parse_args())
