# cause: workers-restarted, many-small-tensors
# also: workers-not-worth-it
"""Detects products on shelf photographs: image plus a variable number of boxes with attributes, grid head."""
import functools
import io
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 96
GRID = 6
CATEGORIES = 5
EPOCHS = 8
BATCH = 32
PHOTOS = 192

torch.manual_seed(11)
torch.set_num_threads(1)


@functools.lru_cache(maxsize=1)
def tone_curve():
    """Inverse of the camera's response, tabulated per channel."""
    levels = np.linspace(0, 1, 1 << 16)
    curve = np.zeros_like(levels)
    for gamma in np.linspace(1.6, 2.6, 240):
        curve += np.power(levels, gamma) / 240
    table = np.interp(np.linspace(0, 1, 256), curve, levels)
    return table.astype(np.float32)


def draw_shelf(rng):
    image = Image.new("RGB", (SIDE * 2, SIDE * 2), tuple(int(v) for v in rng.integers(120, 200, 3)))
    pen = ImageDraw.Draw(image)
    rows = []
    for _ in range(int(rng.integers(4, 10))):
        x, y = rng.integers(0, SIDE * 2 - 40, 2)
        w, h = rng.integers(14, 38, 2)
        kind = int(rng.integers(CATEGORIES))
        pen.rectangle([int(x), int(y), int(x + w), int(y + h)], fill=(40 * kind + 30, 220 - 40 * kind, 60 + 30 * kind), outline=(0, 0, 0))
        rows.append((x / 2, y / 2, (x + w) / 2, (y + h) / 2, kind))
    packed = io.BytesIO()
    image.resize((SIDE * 3, SIDE * 3), Image.BICUBIC).save(packed, "PNG")
    return packed.getvalue(), np.asarray(rows, dtype=np.float32)


class ShelfPhotos(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.photos = [draw_shelf(rng) for _ in range(count)]

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        data, rows = self.photos[index]
        image = Image.open(io.BytesIO(data)).convert("RGB").resize((SIDE, SIDE), Image.LANCZOS)
        pixels = tone_curve()[np.asarray(image)]
        boxes = rows[:, :4].copy()
        if np.random.rand() < 0.5:
            pixels = pixels[:, ::-1]
            boxes[:, [0, 2]] = SIDE - boxes[:, [2, 0]]
        boxes = torch.from_numpy(boxes)
        target = {
            "boxes": boxes,
            "labels": torch.from_numpy(rows[:, 4]).long(),
            "area": (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
            "centre": (boxes[:, :2] + boxes[:, 2:]) / 2,
            "crowd": torch.zeros(len(boxes), dtype=torch.bool),
            "image_id": torch.tensor(index),
            "size": torch.tensor([SIDE, SIDE]),
        }
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), target


def detection_collate(samples):
    images, targets = zip(*samples)
    return list(images), list(targets)


class GridDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(GRID), nn.Conv2d(16, 1 + CATEGORIES, 1))

    def forward(self, images):
        return self.net(images)


def grid_targets(targets):
    present = torch.zeros(len(targets), GRID, GRID)
    kinds = torch.zeros(len(targets), GRID, GRID, dtype=torch.long)
    for i, target in enumerate(targets):
        cells = (target["centre"] / SIDE * GRID).long().clamp(0, GRID - 1)
        keep = ~target["crowd"]
        present[i, cells[keep, 1], cells[keep, 0]] = 1
        kinds[i, cells[keep, 1], cells[keep, 0]] = target["labels"][keep]
    return present, kinds


def detection_loss(output, targets):
    present, kinds = grid_targets(targets)
    objectness = nn.functional.binary_cross_entropy_with_logits(output[:, 0], present)
    kind = nn.functional.cross_entropy(output[:, 1:], kinds, reduction="none")
    return objectness + (kind * present).sum() / present.sum().clamp(min=1)


loader = DataLoader(ShelfPhotos(PHOTOS, seed=5), batch_size=BATCH, shuffle=True, num_workers=2, collate_fn=detection_collate)
model = GridDetector()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
began = time.perf_counter()
for epoch in range(EPOCHS):
    running = 0.0
    for images, targets in loader:
        loss = detection_loss(model(torch.stack(images)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1:2d}  loss {running / len(loader):.3f}", flush=True)
seconds = time.perf_counter() - began
print(f"{EPOCHS * PHOTOS / seconds:.0f} photos/s over {seconds:.1f} s")
