# cause: view-of-large-storage
"""Jet tagging on simulated collider events. A sample is one short run with all its events."""
import argparse
import math
import struct
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Stretch(NamedTuple):
    hits: torch.Tensor
    event: torch.Tensor
    energy: torch.Tensor
    is_jet: torch.Tensor
    run: int


class RunFile:
    """A detector run: events one after another, each a count, the energy, the truth bit and its hits."""
    HEAD = struct.Struct("<Iff")
    HIT = 6

    def __init__(self, path):
        self.path = Path(path)

    @classmethod
    def write(cls, path, events, seed):
        rng = np.random.default_rng(seed)
        with open(path, "wb") as fh:
            for _ in range(events):
                jet = float(rng.random() < 0.3)
                hits = rng.standard_normal((int(rng.integers(20, 60)), cls.HIT), dtype=np.float32) + 0.3 * jet
                fh.write(cls.HEAD.pack(len(hits), float(hits[:, 0].sum()), jet) + hits.tobytes())
        return cls(path)

    def __iter__(self):
        raw, at = self.path.read_bytes(), 0
        while at < len(raw):
            n, energy, jet = self.HEAD.unpack_from(raw, at)
            at += self.HEAD.size
            yield np.frombuffer(raw, np.float32, n * self.HIT, at).reshape(n, self.HIT), energy, jet
            at += 4 * n * self.HIT


class HitBuffer:
    """Room for the busiest run the detector can deliver; filled event by event."""

    def __init__(self, hits=1_200_000, events=200_000):
        self.hits = torch.empty(hits, RunFile.HIT)
        self.event = torch.empty(hits, dtype=torch.long)
        self.summary = torch.empty(events, 2)
        self.n = self.k = 0

    def push(self, hits, energy, jet):
        end = self.n + len(hits)
        self.hits[self.n:end] = torch.from_numpy(hits.copy())
        self.event[self.n:end] = self.k
        self.summary[self.k, 0], self.summary[self.k, 1] = energy, jet
        self.n, self.k = end, self.k + 1

    def filled(self):
        return self.hits[:self.n], self.event[:self.n], self.summary[:self.k]


class StretchDataset(Dataset):
    def __init__(self, runs):
        self.runs = runs

    def __len__(self):
        return len(self.runs)

    def __getitem__(self, index):
        buffer = HitBuffer()
        for event in self.runs[index]:
            buffer.push(*event)
        hits, event, summary = buffer.filled()
        return Stretch(hits, event, summary[:, 0], summary[:, 1], index)


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.per_hit = nn.Sequential(nn.Linear(RunFile.HIT, width), nn.SiLU(), nn.Linear(width, width))
        self.head = nn.Linear(width + 1, 1)

    def forward(self, s):
        h = self.per_hit(s.hits)
        pooled = h.new_zeros(len(s.energy), h.shape[1]).index_add_(0, s.event, h) / 40
        return self.head(torch.cat([pooled, s.energy[:, None] / 10], 1)).squeeze(1)


def cosine(step, steps):
    return 0.5 * (1 + math.cos(math.pi * step / steps))


def train(data, args):
    loader = DataLoader(data, batch_size=None, sampler=RandomSampler(data), num_workers=args.workers,
                        persistent_workers=args.epochs > 1)
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: cosine(s, args.epochs * len(loader)))
    for epoch in range(args.epochs):
        t0, losses = time.perf_counter(), []
        for s in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(s), s.is_jet)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {np.mean(losses):.4f} {len(losses) / (time.perf_counter() - t0):.1f} stretches/s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory(prefix="runs") as tmp:
        runs = [RunFile.write(f"{tmp}/run{i:03d}.bin", 120, i) for i in range(30)]
        train(StretchDataset(runs), args)
