# cause: worker-segfault
"""Track-momentum regression from detector hits kept in packed event records, DeepSets model."""
import ctypes
import logging
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
logger = logging.getLogger("tracks")

HEADER = struct.Struct("<IIqf")          # event, hits, offset from the header to the payload, momentum
HIT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("charge", "<f4")])


def simulate(event, rng):
    momentum = float(rng.uniform(0.5, 6.0))
    count = int(rng.integers(8, 24))
    s = np.linspace(0, 1, count)
    hits = np.zeros(count, HIT)
    hits["x"], hits["y"] = s, s ** 2 / momentum + rng.normal(0, 0.003, count)
    hits["z"] = s * rng.normal()
    hits["charge"] = rng.gamma(2.0, 1.0, count)
    # events taken during the run-3 recovery carry the absolute offset of the old file format
    offset = HEADER.size if event != 613 else (event << 36) + HEADER.size
    return HEADER.pack(event, count, offset, momentum) + hits.tobytes()


class RecordStore:
    """All records one behind the other in one buffer; hits are copied out without a Python-level slice."""

    def __init__(self, events, seed=31):
        rng = np.random.default_rng(seed)
        records = [simulate(e, rng) for e in range(events)]
        self.starts = np.cumsum([0] + [len(r) for r in records[:-1]])
        self.blob = np.frombuffer(b"".join(records), dtype=np.uint8).copy()
        self.base = self.blob.ctypes.data

    def header(self, event):
        return HEADER.unpack_from(self.blob, int(self.starts[event]))

    def hits(self, event):
        _, count, offset, momentum = self.header(event)
        out = np.empty(count, HIT)
        ctypes.memmove(out.ctypes.data, self.base + int(self.starts[event]) + offset, out.nbytes)
        return out, momentum


class TrackDataset(Dataset):
    def __init__(self, store, limit=24):
        self.store, self.limit = store, limit

    def __len__(self):
        return len(self.store.starts)

    def __getitem__(self, event):
        hits, momentum = self.store.hits(event)
        cloud = np.stack([hits[name] for name in ("x", "y", "z")] + [np.log1p(np.abs(hits["charge"]))], 1)
        phi = np.arctan2(cloud[:, 1], cloud[:, 0] + 1e-6)
        radius = np.hypot(cloud[:, 0], cloud[:, 1])
        curvature = np.gradient(np.gradient(cloud[:, 1]))
        cloud = np.concatenate([cloud, np.stack([phi, radius, curvature], 1)], 1).astype(np.float32)
        full = np.zeros((self.limit, 7), dtype=np.float32)
        full[: len(cloud)] = cloud[: self.limit]
        return torch.from_numpy(full), min(len(cloud), self.limit), np.float32(1.0 / momentum)


class DeepSet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(7, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, cloud, count):
        mask = torch.arange(cloud.shape[1])[None] < count[:, None]
        pooled = (self.phi(cloud) * mask[..., None]).sum(1) / count[:, None]
        return self.rho(pooled).squeeze(1)


class Fitter:
    def __init__(self, epochs=3):
        self.epochs = epochs
        data = TrackDataset(RecordStore(2400))
        every = np.arange(len(data))
        self.train = DataLoader(Subset(data, every[every % 8 != 0]), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
        self.test = DataLoader(Subset(data, every[every % 8 == 0]), batch_size=64, num_workers=1, persistent_workers=True)
        self.model = DeepSet()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def run(self):
        for epoch in range(self.epochs):
            start = time.time()
            for step, (cloud, count, target) in enumerate(self.train):
                loss = nn.functional.mse_loss(self.model(cloud, count), target)
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()
                if step % 20 == 0:
                    logger.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            with torch.no_grad():
                error = torch.cat([(self.model(c, n) - t).abs() for c, n, t in self.test]).mean()
            logger.info("epoch %d done in %.1f s, test error %.4f", epoch, time.time() - start, error)


if __name__ == "__main__":
    torch.manual_seed(12)
    torch.set_num_threads(1)
    Fitter().run()
