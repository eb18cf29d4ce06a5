# limits: shm=64M
"""Detects traffic signs in dash camera stills of several cameras (image sizes differ, a batch is a list)."""
import io
import random

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

EPOCHS = 2
CELLS = 6


class Camera(Dataset):
    """Stills of one camera, kept as JPEG bytes."""

    def __init__(self, size, stills, seed):
        rng = random.Random(seed)
        self.encoded, self.boxes = [], []
        for _ in range(stills):
            scene = Image.effect_noise(size, 40).convert("RGB")
            pen = ImageDraw.Draw(scene)
            found = []
            for _ in range(rng.randint(1, 3)):
                r = rng.randint(14, 30)
                x, y = rng.randint(r, size[0] - r), rng.randint(r, size[1] - r)
                pen.ellipse((x - r, y - r, x + r, y + r), fill=(200, 20, 30), outline=(250, 250, 250), width=4)
                found.append((x - r, y - r, x + r, y + r))
            buffer = io.BytesIO()
            scene.save(buffer, "JPEG", quality=90)
            self.encoded.append(buffer.getvalue())
            self.boxes.append(np.array(found, np.float32))

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(self.encoded[i])).convert("RGB")
        boxes = self.boxes[i].copy()
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            boxes[:, [0, 2]] = image.width - boxes[:, [2, 0]]
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 2)))
        for kind in (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Sharpness):
            image = kind(image).enhance(random.uniform(0.7, 1.3))
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).contiguous()
        return pixels, torch.from_numpy(boxes)


def keep_lists(samples):
    images, boxes = zip(*samples)
    return list(images), list(boxes)


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveMaxPool2d(CELLS), nn.Conv2d(12, 1, 1))

    def forward(self, images):
        return torch.cat([self.features(image[None].float() / 255) for image in images])[:, 0]


def rasterise(images, boxes):
    grid = torch.zeros(len(images), CELLS, CELLS)
    for cells, image, found in zip(grid, images, boxes):
        column = (found[:, 0] + found[:, 2]) / 2 / image.shape[2] * CELLS
        row = (found[:, 1] + found[:, 3]) / 2 / image.shape[1] * CELLS
        cells[row.long().clamp(0, CELLS - 1), column.long().clamp(0, CELLS - 1)] = 1
    return grid


class Trainer:
    def __init__(self, dataset, workers=2):
        torch.manual_seed(0)
        train, val = random_split(dataset, [0.85, 0.15])
        options = {"batch_size": 3, "num_workers": workers, "collate_fn": keep_lists,
                   "persistent_workers": workers > 0}
        self.train_loader = DataLoader(train, shuffle=True, **options)
        self.val_loader = DataLoader(val, **options)
        self.model = SignNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def loss(self, images, boxes):
        return F.binary_cross_entropy_with_logits(self.model(images), rasterise(images, boxes),
                                                  pos_weight=torch.tensor(10.0))

    def epoch(self):
        total = 0.0
        for images, boxes in self.train_loader:
            loss = self.loss(images, boxes)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        return sum(self.loss(*batch).item() for batch in self.val_loader) / len(self.val_loader)


torch.set_num_threads(1)
cameras = ConcatDataset([Camera((480, 360), 60, 1), Camera((512, 288), 60, 2), Camera((400, 400), 60, 3)])
trainer = Trainer(cameras)
for number in range(EPOCHS):
    print(f"epoch {number} loss {trainer.epoch():.3f} val {trainer.validate():.3f}", flush=True)
