# cause: large-python-objects
# also: workers-not-worth-it
"""ETA regression on courier GPS tracks. Keeps the worst tracks of every epoch for the operations dashboard."""
from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    tracks: int = 6000
    points: int = 1200
    batch_size: int = 96
    epochs: int = 4
    workers: int = 2
    keep_worst: int = 20
    out: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="eta_"))


class TrackStore:
    """All tracks of a month: one base walk per city zone, every ride is a window over it."""

    def __init__(self, cfg: Config):
        rng = np.random.default_rng(11)
        self.walks = np.cumsum(rng.normal(0, 1e-4, (32, 4000, 3)), axis=1)
        self.zone = rng.integers(0, 32, cfg.tracks)
        self.start = rng.integers(0, 4000 - cfg.points, cfg.tracks)
        self.points = cfg.points

    def ride(self, i: int) -> np.ndarray:
        s = self.start[i]
        return self.walks[self.zone[i], s:s + self.points]


class RideDataset(Dataset):
    def __init__(self, store: TrackStore):
        self.store = store

    def __len__(self):
        return len(self.store.zone)

    @staticmethod
    def features(track: np.ndarray) -> np.ndarray:
        d = np.diff(track[::8, :2], axis=0)
        hop = np.hypot(d[:, 0], d[:, 1])
        return np.array([hop.sum(), hop.mean(), hop.std(), hop.max(), *track[0], *track[-1]], dtype=np.float32)

    def __getitem__(self, i):
        track = self.store.ride(i)
        feats = self.features(track)
        return {
            "ride_id": i,
            "x": torch.from_numpy(feats),
            "eta": torch.tensor(float(feats[0]) * 400.0),
            "polyline": [{"lat": lat, "lon": lon, "alt": alt} for lat, lon, alt in track.tolist()],
        }


def collate_rides(samples):
    return {
        "x": torch.stack([s["x"] for s in samples]),
        "eta": torch.stack([s["eta"] for s in samples]),
        "ride_id": [s["ride_id"] for s in samples],
        "polyline": [s["polyline"] for s in samples],
    }


class WorstRides:
    def __init__(self, k: int):
        self.k, self.heap, self.tick = k, [], itertools.count()

    def offer(self, errors, batch):
        for err, rid, line in zip(errors, batch["ride_id"], batch["polyline"]):
            item = (err, next(self.tick), rid, line)
            if len(self.heap) < self.k:
                heapq.heappush(self.heap, item)
            elif err > self.heap[0][0]:
                heapq.heapreplace(self.heap, item)

    def dump(self, path):
        with open(path, "w") as f:
            json.dump([{"ride": r, "error": e, "path": line[::50]} for e, _, r, line in sorted(self.heap)], f)


def make_loader(ds, cfg, shuffle):
    return DataLoader(ds, cfg.batch_size, shuffle=shuffle, num_workers=cfg.workers,
                      collate_fn=collate_rides, persistent_workers=cfg.workers > 0)


def run(cfg: Config):
    ds = RideDataset(TrackStore(cfg))
    cut = int(len(ds) * 0.9)
    train, test = Subset(ds, range(cut)), Subset(ds, range(cut, len(ds)))
    train_dl, test_dl = make_loader(train, cfg, True), make_loader(test, cfg, False)
    net = nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(cfg.epochs):
        worst, t0 = WorstRides(cfg.keep_worst), time.perf_counter()
        for n, batch in enumerate(train_dl, 1):
            pred = net(batch["x"]).squeeze(1)
            err = (pred - batch["eta"]).abs()
            opt.zero_grad()
            err.mean().backward()
            opt.step()
            worst.offer(err.tolist(), batch)
            if n % 10 == 0:
                print(f"[{epoch}] {n}/{len(train_dl)} mae={err.mean().item():.3f} t={time.perf_counter() - t0:.1f}", flush=True)
        worst.dump(os.path.join(cfg.out, f"worst_{epoch}.json"))
        with torch.no_grad():
            mae = torch.cat([(net(b["x"]).squeeze(1) - b["eta"]).abs() for b in test_dl]).mean()
        print(f"[{epoch}] test mae {mae:.3f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    run(Config(epochs=a.epochs, workers=a.workers))
