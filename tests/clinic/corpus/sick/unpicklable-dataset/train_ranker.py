# cause: unpicklable-dataset
"""Listwise ranking on tabular features with a configurable preprocessing pipeline."""
import argparse
import multiprocessing as mp

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pipeline:
    def __init__(self, *stages):
        self.stages = list(stages)

    def __call__(self, row):
        for stage in self.stages:
            row = stage(row)
        return row


class Clip:
    def __init__(self, lo, hi):
        self.lo, self.hi = lo, hi

    def __call__(self, row):
        return np.clip(row, self.lo, self.hi)


class Standardise:
    def __init__(self, rows):
        self.mu, self.sd = rows.mean(0), rows.std(0) + 1e-6

    def __call__(self, row):
        return (row - self.mu) / self.sd


REGISTRY = {
    "signed_log": lambda row: np.sign(row) * np.log1p(np.abs(row)),
    "square": lambda row: np.concatenate([row, row ** 2], axis=-1),
}


def build_pipeline(names, rows):
    return Pipeline(Clip(-50, 50), Standardise(rows), *(REGISTRY[n] for n in names))


class Queries(Dataset):
    def __init__(self, n, docs, features, pipeline_names):
        rng = np.random.default_rng(0)
        self.x = rng.standard_cauchy((n, docs, features)).astype(np.float32)
        self.y = (self.x[..., :3].sum(-1) > 0).astype(np.float32)
        self.prepare = build_pipeline(pipeline_names, self.x.reshape(-1, features).clip(-50, 50))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.prepare(self.x[i]).astype(np.float32)), torch.from_numpy(self.y[i])


def listwise(scores, relevance):
    target = relevance / relevance.sum(1, keepdim=True).clamp_min(1)
    return -(target * scores.log_softmax(1)).sum(1).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--queries", type=int, default=800)
    ap.add_argument("--docs", type=int, default=20)
    ap.add_argument("--features", type=int, default=30)
    ap.add_argument("--stages", nargs="+", default=["signed_log", "square"])
    a = ap.parse_args()
    data = Queries(a.queries, a.docs, a.features, a.stages)
    loader = DataLoader(data, 32, shuffle=True, num_workers=2, multiprocessing_context=mp.get_context("spawn"), persistent_workers=True)
    width = a.features * (2 if "square" in a.stages else 1)
    model = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(3):
        total = 0.0
        for x, y in loader:
            loss = listwise(model(x).squeeze(-1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
