# cause: many-small-tensors
"""Predictive maintenance: every machine reports some two hundred named channels."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GROUPS = {"temp": 60, "vib": 90, "amp": 50, "flow": 40}


class Machines(Dataset):
    def __init__(self, n, window):
        self.n, self.window = n, window
        self.names = [f"{g}_{k:02d}" for g, c in GROUPS.items() for k in range(c)]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        block = rng.standard_normal((len(self.names), self.window)).astype(np.float32)
        fail = i % 5 == 0
        if fail:
            block[60:80] += 0.5
        sample = {name: torch.from_numpy(block[k]) for k, name in enumerate(self.names)}
        sample["fail"] = torch.tensor(float(fail))
        return sample


class FusionNet(nn.Module):
    def __init__(self, names, window, width=64):
        super().__init__()
        self.names = names
        self.encode = nn.Linear(window, 4)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4 * len(names), width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch):
        x = torch.stack([batch[n] for n in self.names], 1)
        return self.head(self.encode(x).flatten(1)).squeeze(1)


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--machines", type=int, default=440)
    p.add_argument("--window", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--workers", type=int, default=2)
    return p.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    data = Machines(args.machines, args.window)
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0)
    model = FusionNet(data.names, args.window)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        start, total = time.perf_counter(), 0.0
        for batch in loader:
            target = batch.pop("fail")
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print("epoch %d loss %.4f, %.1f s" % (epoch, total / len(loader), time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
