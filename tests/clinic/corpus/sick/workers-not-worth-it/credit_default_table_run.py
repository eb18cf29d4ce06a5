# cause: workers-not-worth-it
"""Credit default on a table of applicants: a scorecard fitted by small steps, early stopping on validation AUC."""
import dataclasses
import os
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclasses.dataclass
class Config:
    rows: int = 20000
    batch_size: int = 8
    max_epochs: int = 5
    patience: int = 5
    loader: dict = dataclasses.field(default_factory=lambda: {
        "num_workers": min(2, os.cpu_count() or 1), "persistent_workers": True, "prefetch_factor": 4})


class Applicants(NamedTuple):
    numeric: torch.Tensor
    category: torch.Tensor
    default: torch.Tensor


def synthesise(rows, seed=17):
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(rows, 10)).astype(np.float32)
    category = rng.integers(0, 12, (rows, 3))
    effect = rng.normal(0, 0.8, (3, 12))
    logit = numeric[:, 0] * 1.1 - numeric[:, 3] * numeric[:, 4] + sum(effect[k][category[:, k]] for k in range(3)) - 1.2
    default = rng.random(rows) < 1 / (1 + np.exp(-logit))
    return Applicants(torch.from_numpy(numeric), torch.from_numpy(category), torch.from_numpy(default.astype(np.float32)))


class ApplicantTable(Dataset):
    def __init__(self, columns):
        self.columns = columns
        mean, std = columns.numeric.mean(0), columns.numeric.std(0)
        scaled = (columns.numeric - mean) / std
        onehot = nn.functional.one_hot(columns.category, 12).flatten(1).float()
        self.features = torch.cat([scaled, scaled[:, 3:4] * scaled[:, 4:5], onehot], 1)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, row):
        return self.features[row], self.columns.default[row]


class Scorer(nn.Module):
    """A scorecard: one weight for each figure and for each category."""

    def __init__(self, width):
        super().__init__()
        self.points = nn.Linear(width, 1)

    def forward(self, features):
        return self.points(features).squeeze(1)


def auc(score, label):
    rank = score.argsort().argsort().double() + 1
    pos = label.sum().double()
    return ((rank[label > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))).item()


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, -1.0, 0

    def __call__(self, value):
        if value > self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def fit(cfg):
    torch.manual_seed(4)
    torch.set_num_threads(1)
    table = ApplicantTable(synthesise(cfg.rows))
    train_part, valid_part = random_split(table, [0.8, 0.2])
    train = DataLoader(train_part, batch_size=cfg.batch_size, shuffle=True, **cfg.loader)
    valid = DataLoader(valid_part, batch_size=cfg.batch_size * 8, **cfg.loader)
    model, stop = Scorer(table.features.shape[1]), EarlyStopping(cfg.patience)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(cfg.max_epochs):
        tick = time.perf_counter()
        for features, default in train:
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(features), default).backward()
            optimiser.step()
        rate = len(train_part) / (time.perf_counter() - tick)
        with torch.no_grad():
            pairs = [(model(x), d) for x, d in valid]
        value = auc(torch.cat([s for s, _ in pairs]), torch.cat([d for _, d in pairs]))
        print(f"epoch {epoch:2d}  auc {value:.4f}  {rate:,.0f} rows/s", flush=True)
        if stop(value):
            break
    return stop.best


if __name__ == "__main__":
    print("best auc", round(fit(Config()), 4))
