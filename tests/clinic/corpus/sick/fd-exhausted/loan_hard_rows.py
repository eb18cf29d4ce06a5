# cause: fd-exhausted
# limits: nofile=256
"""Default prediction on loan histories with replay of the hardest rows of past steps."""
import argparse
import heapq
import itertools
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = ("amount", "rate", "age", "income", "late", "open_lines")


def dump_applications(folder, n, seed=11):
    rng = np.random.default_rng(seed)
    path = os.path.join(folder, "applications.jsonl")
    offsets = []
    with open(path, "wb") as f:
        for _ in range(n):
            row = {k: float(v) for k, v in zip(FIELDS, rng.normal(size=len(FIELDS)))}
            row["history"] = [round(float(v), 4) for v in rng.normal(size=240)]
            z = row["late"] + 0.7 * row["rate"] - row["income"] + float(np.mean(row["history"][-24:]))
            row["default"] = int(z + rng.normal(0, 0.4) > 0)
            offsets.append(f.tell())
            f.write(json.dumps(row).encode() + b"\n")
    return path, offsets


class Applications(Dataset):
    def __init__(self, path, offsets):
        self.path = path
        self.offsets = np.asarray(offsets, dtype=np.int64)

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[i])
            row = json.loads(f.readline())
        h = np.asarray(row["history"], dtype=np.float32)
        roll = [np.convolve(h, np.ones(w, dtype=np.float32) / w, mode="valid") for w in (3, 6, 12, 24, 48)]
        feats = [f(r) for r in roll for f in (np.mean, np.std, np.min, np.max, np.median)]
        feats += np.quantile(h, np.linspace(0.02, 0.98, 25)).tolist() + np.abs(np.fft.rfft(h))[:20].tolist()
        base = [row[k] for k in FIELDS]
        return torch.tensor(base + feats, dtype=torch.float32), torch.tensor(float(row["default"]))


class Replay:
    """A bounded heap of the rows with the largest loss so far."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.heap = []
        self.tick = itertools.count()

    def offer(self, x, y, losses):
        for row, target, value in zip(x.unbind(0), y.unbind(0), losses.tolist()):
            entry = (value, next(self.tick), row, target)
            if len(self.heap) < self.capacity:
                heapq.heappush(self.heap, entry)
            elif value > self.heap[0][0]:
                heapq.heapreplace(self.heap, entry)

    def sample(self, k):
        if len(self.heap) < k:
            return None
        picks = [self.heap[j] for j in np.random.choice(len(self.heap), size=k, replace=False)]
        return torch.stack([p[2] for p in picks]), torch.stack([p[3] for p in picks])


class Learner:
    def __init__(self, width, args):
        self.net = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, 1))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        self.replay = Replay(args.replay)
        self.args = args

    def losses(self, x, y):
        return nn.functional.binary_cross_entropy_with_logits(self.net(x).squeeze(1), y, reduction="none")

    def step(self, x, y):
        each = self.losses(x, y)
        loss = each.mean()
        again = self.replay.sample(8)
        if again is not None:
            loss = loss + 0.5 * self.losses(*again).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.replay.offer(x, y, each.detach())
        return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=1600)
    ap.add_argument("--replay", type=int, default=1500)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--batch", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Applications(*dump_applications(folder, args.rows))
        loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=2, drop_last=True)
        learner = Learner(len(data[0][0]), args)
        for step, (x, y) in enumerate(loader):
            loss = learner.step(x, y)
            if step % 40 == 0:
                print(f"step {step:4d}  loss {loss:.4f}  replay {len(learner.replay.heap)}", flush=True)
        print("done", step + 1, "steps")


if __name__ == "__main__":
    main()
