# cause: unpicklable-dataset
"""Churn model: sequences of account events, bucketed per column."""
import argparse
import csv
import io
import random
from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = ["logins", "tickets", "spend", "tenure"]


def export(n):
    r = random.Random(4)
    out = io.StringIO()
    w = csv.DictWriter(out, COLUMNS + ["left"])
    w.writeheader()
    for _ in range(n):
        row = {"logins": r.randint(0, 90), "tickets": r.randint(0, 9), "spend": round(r.expovariate(0.02), 2), "tenure": r.randint(1, 60)}
        row["left"] = int(row["tickets"] * 8 > row["logins"])
        w.writerow(row)
    return out.getvalue()


class Accounts(Dataset):
    def __init__(self, text):
        self.rows = list(csv.DictReader(io.StringIO(text)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def bucketiser(rows, buckets):
    """Quantile borders from the training part."""
    borders = {}
    for c in COLUMNS:
        values = torch.tensor([float(r[c]) for r in rows]).sort().values
        borders[c] = values[torch.linspace(0, len(values) - 1, buckets).long()]

    def to_buckets(row):
        return [int(torch.bucketize(float(row[c]), borders[c])) for c in COLUMNS]

    return to_buckets


def assemble(encode, rows):
    x = torch.tensor([encode(r) for r in rows])
    y = torch.tensor([float(r["left"]) for r in rows])
    return x, y


class Churn(nn.Module):
    def __init__(self, buckets, dim=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(buckets + 1, dim) for _ in COLUMNS)
        self.mlp = nn.Sequential(nn.Linear(dim * len(COLUMNS), 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.mlp(torch.cat([t(x[:, k]) for k, t in enumerate(self.tables)], 1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--accounts", type=int, default=1200)
    ap.add_argument("--buckets", type=int, default=12)
    ap.add_argument("--start-method", default="spawn")
    a = ap.parse_args()
    data = Accounts(export(a.accounts))
    collate = partial(assemble, bucketiser(data.rows, a.buckets))
    loader = DataLoader(data, 40, shuffle=True, num_workers=2, collate_fn=collate, multiprocessing_context=a.start_method)
    model = Churn(a.buckets)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    for epoch in range(2):
        seen = 0.0
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += loss.item()
        print(f"epoch {epoch}: {seen / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
