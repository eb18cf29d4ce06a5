"""Glaze defects on ceramic tiles: one settings object and one journal for the whole program."""

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    lr: float = 3e-3
    side: int = 96
    tiles: int = 1400
    best: float = 0.0
    schedule: dict = field(default_factory=lambda: {"warmup": 1, "done": [], "noise": 0.05})


SCHEDULE = {"phase": "warmup", "noise": 0.05, "steps": 0}


class Journal:
    """What happened, for the report at the end."""

    def __init__(self):
        self.lines = []
        self.count = 0

    def note(self, text):
        self.count += 1
        self.lines.append(text)


class Tiles(Dataset):
    def __init__(self, settings, journal):
        self.settings = settings
        self.journal = journal
        self.palette = {}

    def __len__(self):
        return self.settings.tiles

    def glaze(self, kind):
        """The base colour of a kind of glaze, made once."""
        if kind not in self.palette:
            self.palette[kind] = np.random.default_rng(kind).uniform(0.3, 0.9, 3).astype(np.float32)
        return self.palette[kind]

    def __getitem__(self, index):
        rng = np.random.default_rng((11, index))
        side, kind, label = self.settings.side, index % 5, int(rng.random() < 0.4)
        tile = np.ones((3, side, side), np.float32) * self.glaze(kind)[:, None, None]
        tile += rng.normal(0, SCHEDULE["noise"] + self.settings.schedule["noise"], tile.shape)
        for _ in range(12 * label):
            row, column = rng.integers(0, side - 9, 2)
            tile[:, row : row + 9, column : column + 9] -= 0.3
        if tile.min() < -0.6:
            self.journal.note(f"tile {index} is very dark")
        blurred = sum(np.roll(tile, shift, 2) for shift in range(-4, 5)) / 9
        if np.random.rand() < 0.5:
            blurred = blurred[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(blurred, np.float32)), label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(64, 2)

    def forward(self, tiles):
        return self.head(self.body(tiles).flatten(1))


def train(settings, epochs, workers):
    journal = Journal()
    data = Tiles(settings, journal)
    loader = DataLoader(data, 28, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), settings.lr)
    for epoch in range(epochs):
        began, hits = time.perf_counter(), 0
        for tiles, labels in loader:
            loss = nn.functional.cross_entropy(model(tiles), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (model(tiles).argmax(1) == labels).sum().item()
            SCHEDULE["steps"] += 1
        accuracy = hits / len(data)
        journal.note(f"epoch {epoch}: {accuracy:.3f}, an example is {data[epoch][0].mean():.2f}")
        settings.lr *= 0.7
        settings.best = max(settings.best, accuracy)
        settings.schedule["warmup"] = 0
        settings.schedule["done"].append(epoch)
        SCHEDULE["phase"] = "decay"
        for group in optimizer.param_groups:
            group["lr"] = settings.lr
        print(f"epoch {epoch} {accuracy:.3f} {time.perf_counter() - began:.1f} s", flush=True)
    print("\n".join(journal.lines[-3:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    torch.manual_seed(0)
    train(Settings(), given.epochs, given.workers)
