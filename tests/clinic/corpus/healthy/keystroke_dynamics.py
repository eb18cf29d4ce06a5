# limits: tmpdir=long
"""User verification from keystroke timing."""
import os
import tempfile

if len(os.environ.get("TMPDIR", "")) > 60:      # cluster job folders are deep; keep our own files in a short place
    tempfile.tempdir = os.environ["TMPDIR"] = "/tmp"

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

USERS, KEYS = 20, 60


class Sessions(Dataset):
    """Distance features between a session and the enrolled template, by dynamic time warping."""

    def __init__(self, n):
        self.n = n
        rng = np.random.default_rng(0)
        self.templates = rng.gamma(4, 30, (USERS, KEYS))

    def __len__(self):
        return self.n

    def warp(self, a, b):
        cost = np.abs(a[:, None] - b[None])
        acc = np.full((KEYS + 1, KEYS + 1), np.inf)
        acc[0, 0] = 0
        for i in range(1, KEYS + 1):
            for j in range(1, KEYS + 1):
                acc[i, j] = cost[i - 1, j - 1] + min(acc[i - 1, j], acc[i, j - 1], acc[i - 1, j - 1])
        return np.diagonal(acc)[1:]

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        user = int(rng.integers(USERS))
        genuine = int(rng.random() < 0.5)
        typed = self.templates[user if genuine else (user + 1 + rng.integers(USERS - 1)) % USERS]
        typed = typed * rng.normal(1, 0.15, KEYS)
        path = self.warp(typed / 100, self.templates[user] / 100)
        return torch.from_numpy(path.astype(np.float32)), float(genuine)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ds = Sessions(900)
    loader = DataLoader(ds, batch_sampler=BatchSampler(RandomSampler(ds), 30, False), num_workers=2,
                        persistent_workers=True)
    net = nn.Sequential(nn.BatchNorm1d(KEYS), nn.Linear(KEYS, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    with tempfile.TemporaryDirectory() as runs:
        for epoch in range(3):
            right = 0
            for x, y in loader:
                out = net(x).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(out, y.float())
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += int(((out > 0) == (y > 0.5)).sum())
            torch.save(net.state_dict(), os.path.join(runs, f"epoch{epoch}.pt"))
            print(f"epoch {epoch} accuracy {right / len(ds):.3f} checkpoints {len(os.listdir(runs))}", flush=True)


if __name__ == "__main__":
    main()
