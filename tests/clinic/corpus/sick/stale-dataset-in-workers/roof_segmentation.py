# cause: stale-dataset-in-workers
"""Roof segmentation on aerial tiles; augmentation grows and the working resolution doubles after the warm-up epoch."""
import time

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

TILES_PER_CITY = {"north": 1100, "harbour": 1000}
EPOCHS, BATCH, WORKERS, SIDE = 2, 20, 2, 448


class Policy:
    """What is done to a tile, read by the transforms and moved on by the training loop."""

    strength = 0.0
    scale = 4

    @classmethod
    def advance(cls, epoch):
        cls.strength = min(1.0, 0.5 * epoch)
        cls.scale = 4 if epoch == 0 else 2


class Jitter:
    def __call__(self, image, mask):
        s = Policy.strength
        image = ImageEnhance.Brightness(image).enhance(1 + s * np.random.uniform(-0.5, 0.5))
        image = ImageEnhance.Contrast(image).enhance(1 + s * np.random.uniform(-0.5, 0.5))
        return ImageEnhance.Color(image).enhance(1 + s * np.random.uniform(-0.5, 0.5)), mask


class Turn:
    def __call__(self, image, mask):
        angle = Policy.strength * np.random.uniform(-45, 45)
        return image.rotate(angle, Image.Resampling.BICUBIC), mask.rotate(angle, Image.Resampling.NEAREST)


class Haze:
    def __call__(self, image, mask):
        return image.filter(ImageFilter.GaussianBlur(0.5 + 2 * Policy.strength * np.random.random())), mask


class Normalise:
    def __call__(self, image, mask):
        x = np.asarray(image, np.float32).transpose(2, 0, 1) / 255 - 0.5
        return torch.from_numpy(x.copy()), torch.from_numpy(np.asarray(mask, np.float32) / 255)


class Chain:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, *pair):
        for step in self.steps:
            pair = step(*pair)
        return pair


class City(Dataset):
    """Tiles painted from a city's own seed, so that the same index is the same tile."""

    def __init__(self, name, tiles, transform):
        self.seeds = np.random.default_rng(sum(name.encode())).integers(0, 2**31, tiles)
        self.transform = transform

    def __len__(self):
        return len(self.seeds)

    def paint(self, seed):
        g = np.random.default_rng(seed)
        ground = g.integers(60, 120, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        image = Image.fromarray(ground).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        mask = Image.new("L", (SIDE, SIDE))
        draw, draw_mask = ImageDraw.Draw(image), ImageDraw.Draw(mask)
        for _ in range(int(g.integers(4, 12))):
            x, y = g.integers(0, SIDE - 60, 2)
            w, h = g.integers(25, 90, 2)
            box = (int(x), int(y), int(x + w), int(y + h))
            draw.rectangle(box, fill=tuple(int(c) for c in g.integers(110, 220, 3)))
            draw_mask.rectangle(box, fill=255)
        return image, mask

    def __getitem__(self, i):
        image, mask = self.transform(*self.paint(self.seeds[i]))
        return image[:, ::2, ::2], mask[::2, ::2]


def coarse(x, y, k):
    return nn.functional.avg_pool2d(x, k), nn.functional.avg_pool2d(y[:, None], k)


def iou(logits, y):
    p, y = logits > 0, y > 0.5
    return ((p & y).sum() / (p | y).sum().clamp(min=1)).item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    np.random.seed(0)
    train = ConcatDataset([City(name, n, Chain(Turn(), Jitter(), Haze(), Normalise())) for name, n in TILES_PER_CITY.items()])
    val = City("hills", 60, Normalise())
    loader = DataLoader(train, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True, drop_last=True)
    val_loader = DataLoader(val, BATCH)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
    opt = torch.optim.AdamW(net.parameters(), 3e-3)
    for epoch in range(EPOCHS):
        Policy.advance(epoch)
        begin, losses = time.monotonic(), []
        for image, mask in loader:
            x, y = coarse(image, mask, Policy.scale)
            loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        with torch.no_grad():
            scores = []
            for image, mask in val_loader:
                x, y = coarse(image, mask, Policy.scale)
                scores.append(iou(net(x), y))
        print(f"epoch {epoch} strength {Policy.strength:.1f} loss {np.mean(losses):.3f} IoU {np.mean(scores):.3f} {time.monotonic() - begin:.1f} s", flush=True)


main()
