# cause: class-not-importable
"""Income bracket from census rows.  The record type follows the column schema shipped with the data."""
import csv
import dataclasses
import json
import os
import sys
import tempfile

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = {"int": int, "float": float, "str": str}
JOBS = ["farm", "office", "sales", "craft", "care", "army"]


def write_release(folder, n):
    rng = np.random.default_rng(31)
    schema = [["age", "int"], ["hours", "float"], ["job", "str"], ["school", "int"], ["gain", "float"], ["bracket", "int"]]
    with open(os.path.join(folder, "schema.json"), "w") as f:
        json.dump({"table": "Resident", "columns": schema}, f)
    with open(os.path.join(folder, "rows.csv"), "w", newline="") as f:
        out = csv.writer(f)
        for _ in range(n):
            age, school, job = int(rng.integers(18, 80)), int(rng.integers(4, 20)), str(rng.choice(JOBS))
            hours, gain = float(rng.normal(38, 9)), float(rng.exponential(300))
            score = school * 2 + hours * 0.3 + gain / 400 + JOBS.index(job)
            out.writerow([age, round(hours, 2), job, school, round(gain, 2), int(score > 38)])


def record_type(description):
    """Build the row class and publish it in this module, so that it can be used like any other."""
    fields = [(name, KINDS[kind]) for name, kind in description["columns"]]
    cls = dataclasses.make_dataclass(description["table"], fields, frozen=True, namespace={"__module__": __name__})
    cls.__module__ = __name__
    setattr(sys.modules[__name__], cls.__name__, cls)
    return cls


def load_rows(folder):
    with open(os.path.join(folder, "schema.json")) as f:
        description = json.load(f)
    cls = record_type(description)
    kinds = [KINDS[k] for _, k in description["columns"]]
    with open(os.path.join(folder, "rows.csv"), newline="") as f:
        return [cls(*(k(v) for k, v in zip(kinds, row))) for row in csv.reader(f)]


class Residents(Dataset):
    def __init__(self, rows, knots=64):
        self.rows, self.knots = rows, knots

    def __len__(self):
        return len(self.rows)

    def spline(self, value, low, high):
        t = np.linspace(low, high, self.knots)
        bump = np.exp(-0.5 * ((value - t) / ((high - low) / self.knots)) ** 2)
        return np.convolve(bump, np.hanning(9), mode="same")

    def __getitem__(self, k):
        r = self.rows[k]
        parts = [self.spline(r.age, 15, 85), self.spline(r.hours, 0, 80), self.spline(r.school, 0, 22), self.spline(r.gain, 0, 3000)]
        for _ in range(12):     # jittered copies, averaged: smooths the brackets of small cells
            parts[1] = 0.9 * parts[1] + 0.1 * self.spline(r.hours + np.random.normal(0, 2), 0, 80)
            parts[3] = 0.9 * parts[3] + 0.1 * self.spline(r.gain * np.random.uniform(0.9, 1.1), 0, 3000)
        hot = np.eye(len(JOBS))[JOBS.index(r.job)]
        return torch.tensor(np.concatenate(parts + [hot]), dtype=torch.float32), r.bracket


class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.deep = nn.Sequential(nn.Linear(width, 48), nn.ReLU(), nn.Linear(48, 2))
        self.wide = nn.Linear(width, 2)

    def forward(self, x):
        return self.deep(x) + self.wide(x)


def main():
    mp.set_start_method("spawn", force=True)
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory(prefix="census_") as folder:
        write_release(folder, 1600)
        data = Residents(load_rows(folder))
        loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
        net = Wide(4 * data.knots + len(JOBS))
        opt = torch.optim.Adam(net.parameters(), lr=2e-3)
        for epoch in range(2):
            right = 0
            for x, y in loader:
                logits = net(x)
                loss = nn.functional.cross_entropy(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                right += (logits.argmax(1) == y).sum().item()
            print(f"epoch {epoch}: {right / len(data):.3f}", flush=True)


if __name__ == "__main__":
    main()
