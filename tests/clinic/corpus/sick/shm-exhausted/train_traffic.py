# cause: shm-exhausted
# also: iterable-not-sharded
# limits: shm=64M
"""Traffic cameras: a statistics pass first, then training on rendered frames."""
import argparse
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def write_events(path, n):
    rng = np.random.default_rng(0)
    with open(path, "w") as fh:
        for k in range(n):
            fh.write(json.dumps({"id": k, "cars": int(rng.integers(0, 9)), "hour": int(rng.integers(24)), "speed": float(rng.normal(60, 12))}) + "\n")


class Events(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as fh:
            for line in fh:
                yield self.convert(json.loads(line))

    def convert(self, event):
        return torch.tensor([event["hour"] / 24, event["speed"]]), event["id"]


class Frames(Events):
    """The same events, drawn on a road."""

    def __init__(self, path, side, stats):
        super().__init__(path)
        self.side, self.stats = side, stats

    def convert(self, event):
        img = torch.full((3, self.side, self.side), event["hour"] / 24)
        lanes = np.random.default_rng(event["id"]).integers(0, self.side - 24, (event["cars"], 2))
        for y, x in lanes:
            img[:, y:y + 24, x:x + 16] = 1.0
        mean, std = self.stats
        return img, torch.tensor((event["speed"] - mean) / std), float(event["cars"])


def group(samples):
    images = [s[0].mul(2).sub(1) for s in samples]
    return {"images": torch.stack(images), "speed": torch.stack([s[1] for s in samples]), "cars": torch.tensor([s[2] for s in samples])}


def statistics(path, workers):
    speeds = []
    for x, _ in DataLoader(Events(path), batch_size=16, num_workers=workers):
        speeds.append(x[:, 1].clone())
    speeds = torch.cat(speeds)
    print(f"{len(speeds)} events, mean speed {speeds.mean():.1f}", flush=True)
    return speeds.mean().item(), speeds.std().item()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(3, 8, 9, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(129, 1)

    def forward(self, images, speed):
        return self.head(torch.cat([self.f(images), speed[:, None]], 1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--events", type=int, default=320)
    ap.add_argument("--side", type=int, default=480)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "events.jsonl")
        write_events(path, a.events)
        stats = statistics(path, a.workers)
        loader = DataLoader(Frames(path, a.side, stats), batch_size=10, num_workers=a.workers, collate_fn=group)
        model = Counter()
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        for step, b in enumerate(loader):
            loss = nn.functional.mse_loss(model(b["images"], b["speed"]), b["cars"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"step {step} mse {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
