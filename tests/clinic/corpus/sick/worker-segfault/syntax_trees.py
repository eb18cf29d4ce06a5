# cause: worker-segfault
"""Tree features for source code: predict the language family of a snippet from its parse tree."""
import gzip
import json
import os
import shutil
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = 40
sys.setrecursionlimit(2_000_000)


def grow(rng, depth, bias):
    kind = int((rng.integers(KINDS) + bias * 5) % KINDS)
    if depth == 0:
        return [kind]
    return [kind] + [grow(rng, depth - 1, bias) for _ in range(int(rng.integers(1, 4)))]


def chain(length):
    return "[3," * length + "[7]" + "]" * length


def make_corpus(folder, n, families):
    rng = np.random.default_rng(99)
    rows = []
    for k in range(n):
        family = k % families
        text = json.dumps(grow(rng, 6, family)) if k != 333 else chain(400_000)
        name = os.path.join(folder, f"{k:05d}.tree.gz")
        with gzip.open(name, "wt", compresslevel=1) as f:
            f.write(text)
        rows.append((name, family))
    return rows


def paths(tree, out, parent=KINDS, depth=0, stop=64):
    kind = tree[0]
    out.append((parent, kind, min(depth, 7)))
    if depth < stop:
        for child in tree[1:]:
            paths(child, out, kind, depth + 1, stop)
    return out


class TreeFile(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def load(self, name):
        with gzip.open(name, "rt") as f:
            return json.load(f)

    def __getitem__(self, i):
        name, family = self.rows[i]
        table = np.zeros((KINDS + 1, KINDS), np.float32)
        level = np.zeros((8, KINDS), np.float32)
        for parent, kind, depth in paths(self.load(name), []):
            table[parent, kind] += 1
            level[depth, kind] += 1
        time.sleep(0.002)
        return torch.from_numpy(np.concatenate([table, level]) / table.sum()), family


class Classifier(nn.Module):
    def __init__(self, families):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear((KINDS + 9) * KINDS, 128), nn.ReLU(), nn.Linear(128, families))

    def forward(self, x):
        return self.net(x * 100)


class EarlyStop:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def train(folder, epochs=4, families=4):
    torch.manual_seed(6)
    rows = make_corpus(folder, 480, families)
    loader = DataLoader(TreeFile(rows), batch_size=12, shuffle=True, num_workers=2, persistent_workers=True)
    model, stop = Classifier(families), EarlyStop(2)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(epochs):
        total = 0.0
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}", flush=True)
        if stop(total):
            break


if __name__ == "__main__":
    work = tempfile.mkdtemp(prefix="trees_")
    try:
        train(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
