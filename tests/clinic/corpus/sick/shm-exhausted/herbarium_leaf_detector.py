# cause: shm-exhausted
# limits: shm=64M
"""Leaf detection on herbarium sheets. Sheets differ in size, so a batch stays a list until the model pads it."""
import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

SHEETS = 72
EPOCHS = 2
GRID = 8


class Sheets(NamedTuple):
    images: list
    boxes: list
    names: list

    @classmethod
    def gather(cls, samples):
        return cls(*map(list, zip(*samples)))


def press_specimens(folder, count):
    rng = random.Random(5)
    for n in range(count):
        width, height = rng.randrange(960, 1120, 16), rng.randrange(1200, 1360, 16)
        sheet = Image.new("RGB", (width, height), (236, 228, 208))
        pen = ImageDraw.Draw(sheet)
        boxes = []
        for _ in range(rng.randint(2, 6)):
            w, h = rng.randint(90, 220), rng.randint(120, 300)
            x, y = rng.randint(0, width - w), rng.randint(0, height - h)
            pen.ellipse((x, y, x + w, y + h), fill=(rng.randint(50, 90), rng.randint(90, 140), 50))
            boxes.append((x, y, x + w, y + h))
        sheet.save(folder / f"sheet{n:04d}.jpg", quality=85)
        np.savetxt(folder / f"sheet{n:04d}.txt", np.array(boxes), fmt="%d")


class Jitter:
    def __call__(self, image):
        gain = 1 + 0.2 * (torch.rand(3, 1, 1) - 0.5)
        return (image * gain).clamp_(0, 1)


class HerbariumDataset(Dataset):
    mean = torch.tensor([0.9, 0.88, 0.8])[:, None, None]

    def __init__(self, folder, transform=None):
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        path = self.paths[i]
        with Image.open(path) as picture:
            array = np.asarray(picture.convert("RGB"))
        image = torch.from_numpy(array.transpose(2, 0, 1).copy()).float().div_(255)
        if self.transform is not None:
            image = self.transform(image)
        boxes = torch.from_numpy(np.loadtxt(path.with_suffix(".txt"), ndmin=2).astype(np.float32))
        return image - self.mean, boxes, path.stem


class GridDetector(nn.Module):
    """Says for each cell of a coarse grid whether a leaf's centre lies in it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(GRID), nn.Conv2d(16, 1, 1))

    def forward(self, images):
        height, width = max(i.shape[1] for i in images), max(i.shape[2] for i in images)
        batch = torch.zeros(len(images), 3, height, width)
        for slot, image in zip(batch, images):
            slot[:, :image.shape[1], :image.shape[2]] = image
        return self.net(batch)[:, 0], (height, width)


def targets(boxes, extent):
    grid = torch.zeros(len(boxes), GRID, GRID)
    for cells, found in zip(grid, boxes):
        cx = (found[:, 0] + found[:, 2]) / 2 / extent[1] * GRID
        cy = (found[:, 1] + found[:, 3]) / 2 / extent[0] * GRID
        cells[cy.long().clamp(max=GRID - 1), cx.long().clamp(max=GRID - 1)] = 1
    return grid


def build_loaders(folder, batch_size=6):
    everything = HerbariumDataset(folder, Jitter())
    plain = HerbariumDataset(folder)
    cut = int(0.8 * len(everything))
    options = dict(batch_size=batch_size, num_workers=2, collate_fn=Sheets.gather, persistent_workers=True)
    return (DataLoader(Subset(everything, range(cut)), shuffle=True, **options),
            DataLoader(Subset(plain, range(cut, len(plain))), **options))


def train(folder):
    train_loader, val_loader = build_loaders(folder)
    model = GridDetector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        total = 0.0
        for sheets in train_loader:
            scores, extent = model(sheets.images)
            loss = F.binary_cross_entropy_with_logits(scores, targets(sheets.boxes, extent), pos_weight=torch.tensor(8.0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        with torch.no_grad():
            recall = []
            for sheets in val_loader:
                scores, extent = model(sheets.images)
                truth = targets(sheets.boxes, extent) > 0
                recall.append((scores[truth] > 0).float().mean().item())
        print(f"[{epoch}] loss {total / len(train_loader):.3f} recall {np.mean(recall):.3f}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="herbarium") as where:
        press_specimens(Path(where), SHEETS)
        print("sheets are ready", flush=True)
        train(where)
