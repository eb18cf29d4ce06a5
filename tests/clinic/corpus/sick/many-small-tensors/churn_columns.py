# cause: many-small-tensors
"""Churn model on a wide customer table kept in compressed row groups."""
import argparse
import shutil
import struct
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def column_names(n):
    kinds = ("spend", "visits", "calls", "tickets", "balance", "tenure")
    return [f"{kinds[c % len(kinds)]}_{c // len(kinds):02d}" for c in range(n)]


class TableFile:
    HEAD = struct.Struct("<qq")

    def __init__(self, path):
        self.path = path
        self.offsets = []

    def write(self, rows, columns):
        rng = np.random.default_rng(0)
        with open(self.path, "wb") as f:
            for r in range(rows):
                values = rng.normal(size=columns + 1).astype("<f4")
                values[-1] = float(values[:20].sum() > 0)
                body = zlib.compress(values.tobytes())
                self.offsets.append(f.tell())
                f.write(self.HEAD.pack(r, len(body)) + body)

    def row(self, r):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[r])
            _, size = self.HEAD.unpack(f.read(self.HEAD.size))
            return np.frombuffer(zlib.decompress(f.read(size)), "<f4")


class Customers(Dataset):
    """A row as a dictionary, so that models can pick columns by name."""

    def __init__(self, table, columns, rows):
        self.table, self.columns, self.rows = table, columns, rows

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        values = self.table.row(i)
        row = {name: float(v) for name, v in zip(self.columns, values)}
        row["label"] = float(values[-1])
        return row


class WideNet(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns
        self.body = nn.Sequential(nn.LayerNorm(len(columns)), nn.Linear(len(columns), 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, batch):
        x = torch.stack([batch[c] for c in self.columns], 1).float()
        return self.body(x)[:, 0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=960)
    p.add_argument("--columns", type=int, default=200)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        table, columns = TableFile(folder / "customers.bin"), column_names(a.columns)
        table.write(a.rows, a.columns)
        loader = DataLoader(Customers(table, columns, a.rows), batch_size=a.batch, shuffle=True, num_workers=a.workers)
        net = WideNet(columns)
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        began = time.time()
        for step, batch in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(net(batch), batch["label"].float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
        print(f"{a.rows / (time.time() - began):.0f} rows/s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
