# cause: class-not-importable
"""Claim severity model. The table layout comes from a schema file, a dataset type is made for it."""
import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCHEMA = {
    "name": "MotorClaims",
    "numeric": {"age": 45.0, "mileage": 30_000.0, "value": 15_000.0},
    "category": {"region": ["north", "south", "east", "west"], "fuel": ["petrol", "diesel", "electric"]},
    "target": "severity",
}


class Table(Dataset):
    """Rows of a csv file, found by byte offset so that nothing large stays in memory."""
    numeric, category, target = {}, {}, ""

    def __init__(self, path):
        self.path = str(path)
        self.offsets = []
        with open(path, "rb") as fh:
            self.columns = fh.readline().decode().strip().split(",")
            at = fh.tell()
            for line in fh:
                self.offsets.append(at)
                at += len(line)
        self.offsets = np.asarray(self.offsets)

    def __len__(self):
        return len(self.offsets)

    def row(self, i):
        with open(self.path, "rb") as fh:
            fh.seek(int(self.offsets[i]))
            return dict(zip(self.columns, fh.readline().decode().strip().split(",")))

    def __getitem__(self, i):
        row = self.row(i)
        x = [float(row[k]) / scale for k, scale in self.numeric.items()]
        for k, levels in self.category.items():
            x += [float(row[k] == level) for level in levels]
        time.sleep(0.002)
        return torch.tensor(x), torch.tensor(float(row[self.target]))


def table_type(schema):
    """A Table subclass for this layout, kept in this module so that it can be found again by name."""
    made = type(schema["name"], (Table,), {
        "__module__": __name__, "__qualname__": schema["name"], "__doc__": f"Rows of {schema['name']}.",
        "numeric": schema["numeric"], "category": schema["category"], "target": schema["target"],
    })
    setattr(sys.modules[__name__], schema["name"], made)
    return made


def generate(path, schema, n):
    rng = np.random.default_rng(6)
    with open(path, "w", newline="") as fh:
        out = csv.writer(fh, lineterminator="\n")
        out.writerow([*schema["numeric"], *schema["category"], schema["target"]])
        for _ in range(n):
            numbers = [round(s * rng.uniform(0.3, 2), 2) for s in schema["numeric"].values()]
            levels = [v[rng.integers(len(v))] for v in schema["category"].values()]
            severity = numbers[2] / 15_000 + 0.5 * (levels[0] == "north") + rng.normal(0, 0.1)
            out.writerow([*numbers, *levels, round(float(severity), 4)])


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=800)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--accumulate", type=int, default=2)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        (root / "schema.json").write_text(json.dumps(SCHEMA))
        generate(root / "claims.csv", SCHEMA, args.rows)
        schema = json.loads((root / "schema.json").read_text())
        data = table_type(schema)(root / "claims.csv")
        width = len(schema["numeric"]) + sum(map(len, schema["category"].values()))
        model = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
        opt = torch.optim.Adam(model.parameters(), lr=5e-3)
        loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=args.workers,
                            multiprocessing_context="forkserver", persistent_workers=True)
        for epoch in range(args.epochs):
            total = 0.0
            for step, (x, y) in enumerate(loader, 1):
                loss = nn.functional.mse_loss(model(x).squeeze(1), y)
                (loss / args.accumulate).backward()
                if step % args.accumulate == 0:
                    opt.step()
                    opt.zero_grad()
                total += loss.item()
            print(f"epoch {epoch}: mse {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
