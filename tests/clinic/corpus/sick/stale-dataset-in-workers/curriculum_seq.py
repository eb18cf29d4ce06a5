# cause: stale-dataset-in-workers
"""Learn to sort: sequences get longer as training goes on."""
import argparse
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class SortingTasks(Dataset):
    PAD = 100

    def __init__(self, path, longest=48):
        with open(path) as f:
            self.offsets = []
            while True:
                pos = f.tell()
                if not f.readline():
                    break
                self.offsets.append(pos)
        self.path = path
        self.longest = longest
        self.active_length = 6

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path) as f:
            f.seek(self.offsets[i])
            values = json.loads(f.readline())["values"]
        values = values[: self.active_length]
        target = list(values)
        for a in range(len(target)):  # keep the steps explicit, the trace is used for auxiliary loss
            for b in range(len(target) - 1 - a):
                if target[b] > target[b + 1]:
                    target[b], target[b + 1] = target[b + 1], target[b]
        trace = np.cumsum(np.sort(np.random.default_rng(i).normal(size=20000)))[-1]
        pad = [self.PAD] * (self.longest - len(values))
        return torch.tensor(values + pad), torch.tensor(target + pad), float(trace)


class Sorter(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(101, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, 101)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def write_tasks(path, n):
    rs = np.random.RandomState(0)
    with open(path, "w") as f:
        for _ in range(n):
            f.write(json.dumps({"values": rs.randint(0, 100, 48).tolist()}) + "\n")


def train_epoch(model, loader, opt):
    model.train()
    losses = []
    for x, y, _ in loader:
        loss = nn.functional.cross_entropy(model(x).transpose(1, 2), y, ignore_index=SortingTasks.PAD)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
    return float(np.mean(losses))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--grow", type=int, default=10, help="extra tokens per epoch")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "tasks.jsonl")
        write_tasks(path, 320)
        tasks = SortingTasks(path)
        loader = DataLoader(tasks, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
        model = Sorter()
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        for epoch in range(args.epochs):
            tasks.active_length = min(tasks.longest, 6 + epoch * args.grow)
            loss = train_epoch(model, loader, opt)
            print(f"epoch {epoch} length {tasks.active_length} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
