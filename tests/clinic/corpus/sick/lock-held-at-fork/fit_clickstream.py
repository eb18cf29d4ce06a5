# cause: lock-held-at-fork
"""Two-tower style click model trained on session logs with side features from a feature table."""
import argparse
import json
import os
import tempfile
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_USERS, N_ITEMS, DIM = 400, 900, 12


@dataclass
class Session:
    user: int
    item: int
    hour: int
    clicked: int


class FeatureTable:
    """Item features, re-read from disk so that a long training sees fresh popularity numbers."""

    def __init__(self, path):
        self.path = path
        self._guard = threading.RLock()
        self._rows = {}
        self._version = 0
        self._load()

    def refresh(self):
        threading.Thread(target=self._load, name="feature-refresh", daemon=True).start()

    def _load(self):
        with self._guard:
            with open(self.path) as f:
                for line in f:
                    row = json.loads(line)
                    self._rows[row["item"]] = np.asarray(row["x"], dtype=np.float32)
            self._version += 1
            time.sleep(0.4)  # remote mount: the listing that follows is slow

    def lookup(self, item):
        with self._guard:
            return self._rows[item]


class SessionDataset(Dataset):
    def __init__(self, sessions, table):
        self.sessions = sessions
        self.table = table

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, i):
        s = self.sessions[i]
        time.sleep(0.002)
        x = self.table.lookup(s.item)
        hour = np.array([np.sin(s.hour / 24 * 2 * np.pi), np.cos(s.hour / 24 * 2 * np.pi)], dtype=np.float32)
        return s.user, s.item, torch.from_numpy(np.concatenate([x, hour])), float(s.clicked)


class TwoTower(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.user = nn.Embedding(N_USERS, width)
        self.item = nn.Embedding(N_ITEMS, width)
        self.side = nn.Sequential(nn.Linear(DIM + 2, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, user, item, side):
        return (self.user(user) * (self.item(item) + self.side(side))).sum(-1)


def make_data(root, n):
    rng = np.random.default_rng(3)
    path = os.path.join(root, "items.jsonl")
    with open(path, "w") as f:
        for i in range(N_ITEMS):
            f.write(json.dumps({"item": i, "x": rng.normal(size=DIM).round(4).tolist()}) + "\n")
    sessions = [Session(int(rng.integers(N_USERS)), int(rng.integers(N_ITEMS)), int(rng.integers(24)), int(rng.random() < 0.3))
                for _ in range(n)]
    return path, sessions


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sessions", type=int, default=1600)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        path, sessions = make_data(root, args.sessions)
        table = FeatureTable(path)
        loader = DataLoader(SessionDataset(sessions, table), batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
        model = TwoTower()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        table.refresh()
        total = 0.0
        for step, (user, item, side, y) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(user, item, side), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if step % 10 == 0:
                print(f"step {step} loss {total / (step + 1):.4f}", flush=True)
        print("done", flush=True)


if __name__ == "__main__":
    main()
