# cause: large-python-objects
"""Readmission risk from hospital timelines; each stay is a sequence of coded events."""
import logging
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EVENT = np.dtype([("minute", "<i4"), ("code", "<i2"), ("value", "<f4"), ("ward", "i1")])
CODES = 300
logger = logging.getLogger("readmission")


def export_stays(folder, n, seed=0):
    rng = np.random.default_rng(seed)
    for k in range(n):
        size = int(rng.integers(5000, 9000))
        ev = np.zeros(size, EVENT)
        ev["minute"] = np.sort(rng.integers(0, 20000, size))
        ev["code"] = rng.integers(0, CODES, size)
        ev["value"] = rng.normal(size=size)
        ev["ward"] = rng.integers(0, 9, size)
        np.save(folder / f"stay{k:04d}.npy", ev)


class Stays(Dataset):
    """One stay per item, as a record with its list of events."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        table = np.load(self.files[i])
        names = table.dtype.names
        events = [dict(zip(names, row)) for row in table.tolist()]
        return {"stay": self.files[i].stem, "events": events, "readmitted": i % 3 == 0}


def to_batch(stays):
    return stays


def bag_of_codes(stays):
    x = torch.zeros(len(stays), 2 * CODES)
    for r, stay in enumerate(stays):
        codes = torch.tensor([e["code"] for e in stay["events"]])
        values = torch.tensor([e["value"] for e in stay["events"]])
        x[r, :CODES] = torch.bincount(codes, minlength=CODES)
        x[r, CODES:].index_add_(0, codes, values)
    y = torch.tensor([float(s["readmitted"]) for s in stays])
    return x / 20, y


class RiskModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(2 * CODES), nn.Linear(2 * CODES, 128), nn.GELU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def fit(files, epochs):
    split = len(files) * 5 // 6
    train = DataLoader(Stays(files[:split]), batch_size=16, shuffle=True, num_workers=2, collate_fn=to_batch,
                       persistent_workers=True)
    val = DataLoader(Stays(files[split:]), batch_size=16, num_workers=2, collate_fn=to_batch, persistent_workers=True)
    model = RiskModel()
    opt = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    for epoch in range(epochs):
        for stays in train:
            x, y = bag_of_codes(stays)
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            scores = []
            for stays in val:
                x, y = bag_of_codes(stays)
                scores.append(((model(x) > 0) == (y > 0)).float().mean())
        logger.info("epoch %d loss %.3f val acc %.3f", epoch, loss.item(), torch.stack(scores).mean())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        export_stays(folder, 240)
        fit(sorted(folder.glob("*.npy")), epochs=3)


if __name__ == "__main__":
    main()
