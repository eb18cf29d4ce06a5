# cause: large-python-objects
"""Scores confluence of cell cultures from microscope fields and their traced outlines."""
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    fields: int = 288
    cells: int = 40
    vertices: int = 160
    side: int = 160
    batch: int = 16
    workers: int = 2
    epochs: int = 3
    lr: float = 1e-3


def trace_field(folder: Path, number: int, cfg: Config) -> float:
    """Draws one field and stores picture, outlines and its score."""
    rng = np.random.default_rng(1000 + number)
    centre = rng.uniform(10, cfg.side - 10, (cfg.cells, 1, 2))
    radius = rng.uniform(3, 11, (cfg.cells, 1))
    angle = np.linspace(0, 2 * np.pi, cfg.vertices, endpoint=False)[None]
    wobble = radius * (1 + 0.15 * np.sin(3 * angle + rng.uniform(0, 6, (cfg.cells, 1))))
    outline = centre + np.stack([wobble * np.cos(angle), wobble * np.sin(angle)], -1)
    canvas = rng.normal(40, 6, (cfg.side, cfg.side))
    x, y = np.clip(outline.reshape(-1, 2).astype(int), 0, cfg.side - 1).T
    canvas[y, x] += 120
    Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8)).save(folder / f"{number:04d}.png")
    np.save(folder / f"{number:04d}.npy", outline.astype(np.float32))
    return float((np.pi * radius ** 2).sum() / cfg.side ** 2)


class FieldDataset(Dataset):
    def __init__(self, folder: Path, scores: np.ndarray, cfg: Config):
        self.folder, self.scores, self.cfg = folder, scores, cfg

    def __len__(self):
        return len(self.scores)

    def picture(self, index):
        with Image.open(self.folder / f"{index:04d}.png") as im:
            im = im.filter(ImageFilter.GaussianBlur(1.5)).filter(ImageFilter.UnsharpMask(2, 120))
            im = im.resize((96, 96), Image.LANCZOS)
        return torch.from_numpy(np.asarray(im, dtype=np.float32) / 255.0)[None]

    def cells(self, index):
        outlines = np.load(self.folder / f"{index:04d}.npy")
        return [{"cell": number, "outline": points, "closed": True} for number, points in enumerate(outlines.tolist())]

    def __getitem__(self, index):
        return {"image": self.picture(index), "score": float(self.scores[index]), "cells": self.cells(index), "field": f"{index:04d}"}


class FieldCollator:
    """Stacks what can be stacked; annotations stay per field because the number of cells varies."""

    stacked = ("image",)

    def __call__(self, items):
        batch = {key: torch.stack([item[key] for item in items]) for key in self.stacked}
        batch["score"] = torch.tensor([item["score"] for item in items])
        batch["cells"] = [item["cells"] for item in items]
        batch["field"] = [item["field"] for item in items]
        return batch


class ConfluenceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3))
        self.head = nn.Linear(16 * 9 + 1, 1)

    def forward(self, image, crowding):
        return self.head(torch.cat([self.conv(image).flatten(1), crowding], 1)).squeeze(1)


class Trainer:
    def __init__(self, cfg: Config, dataset: Dataset):
        self.cfg = cfg
        self.model = ConfluenceNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        cut = int(0.85 * len(dataset))
        self.train_loader = self.loader(Subset(dataset, range(cut)), shuffle=True)
        self.val_loader = self.loader(Subset(dataset, range(cut, len(dataset))), shuffle=False)

    def loader(self, part, shuffle):
        return DataLoader(part, self.cfg.batch, shuffle=shuffle, num_workers=self.cfg.workers, collate_fn=FieldCollator(), persistent_workers=True)

    def loss(self, batch):
        crowding = torch.tensor([[len(cells) / 50.0] for cells in batch["cells"]])
        return F.mse_loss(self.model(batch["image"], crowding), batch["score"])

    def fit(self):
        for epoch in range(self.cfg.epochs):
            start, seen = time.perf_counter(), 0
            self.model.train()
            for batch in self.train_loader:
                loss = self.loss(batch)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                seen += len(batch["field"])
            self.model.eval()
            with torch.no_grad():
                val = [self.loss(batch).item() for batch in self.val_loader]
            elapsed = time.perf_counter() - start
            print(f"epoch {epoch} train {loss.item():.4f} val {np.mean(val):.4f} {seen / elapsed:.0f} fields/s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    config = Config()
    with tempfile.TemporaryDirectory(prefix="fields-") as name:
        root = Path(name)
        scores = np.array([trace_field(root, number, config) for number in range(config.fields)], dtype=np.float32)
        Trainer(config, FieldDataset(root, scores, config)).fit()
