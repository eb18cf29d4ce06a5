"""Claim frequency model. The table layout comes from a schema, a dataset type is made for it when the module is loaded."""
import argparse
import csv
import multiprocessing as mp
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCHEMA = {
    "name": "HouseholdClaims",
    "numeric": {"age": 45.0, "rooms": 5.0, "value": 300_000.0},
    "category": {"roof": ["tile", "slate", "thatch"], "heating": ["gas", "oil", "heat pump"]},
    "target": "claims",
}


class Counter:
    """How many rows were read; may be asked from a reporting thread."""

    def __init__(self):
        self.rows, self._guard = 0, threading.Lock()

    def tick(self):
        with self._guard:
            self.rows += 1

    def __getstate__(self):
        return {"rows": self.rows}

    def __setstate__(self, state):
        self.rows, self._guard = state["rows"], threading.Lock()


class Table(Dataset):
    numeric, category, target = {}, {}, ""

    def __init__(self, path):
        self.path, self.counter = str(path), Counter()
        offsets = []
        with open(path, "rb") as fh:
            self.columns = fh.readline().decode().strip().split(",")
            at = fh.tell()
            for line in fh:
                offsets.append(at)
                at += len(line)
        self.offsets = np.asarray(offsets)

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path, "rb") as fh:
            fh.seek(int(self.offsets[i]))
            row = dict(zip(self.columns, fh.readline().decode().strip().split(",")))
        self.counter.tick()
        x = [float(row[k]) / scale for k, scale in self.numeric.items()]
        for k, levels in self.category.items():
            x += [float(row[k] == level) for level in levels]
        time.sleep(0.003)                                    # look-up of the weather at the address
        return torch.tensor(x), torch.tensor(float(row[self.target]))


def table_type(schema):
    return type(schema["name"], (Table,), {"__module__": __name__, "numeric": schema["numeric"], "category": schema["category"],
                                           "target": schema["target"]})


HouseholdClaims = table_type(SCHEMA)


def generate(path, schema, n):
    rng = np.random.default_rng(6)
    with open(path, "w", newline="") as fh:
        out = csv.writer(fh, lineterminator="\n")
        out.writerow([*schema["numeric"], *schema["category"], schema["target"]])
        for _ in range(n):
            numbers = [round(s * rng.uniform(0.3, 2), 2) for s in schema["numeric"].values()]
            levels = [v[rng.integers(len(v))] for v in schema["category"].values()]
            out.writerow([*numbers, *levels, rng.poisson(0.3 + 0.8 * (levels[0] == "thatch"))])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=640)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    mp.set_forkserver_preload(["numpy", "torch", "torch.utils.data"])
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "claims.csv"
        generate(path, SCHEMA, args.rows)
        loader = DataLoader(HouseholdClaims(path), batch_size=16, shuffle=True, num_workers=args.workers,
                            multiprocessing_context="forkserver", persistent_workers=True)
        model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))
        opt = torch.optim.Adam(model.parameters(), lr=5e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for x, y in loader:
                loss = nn.functional.poisson_nll_loss(model(x).squeeze(1), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                time.sleep(0.04)                             # rest of the step runs on the accelerator
                total += loss.item()
            print(f"epoch {epoch}: deviance {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
