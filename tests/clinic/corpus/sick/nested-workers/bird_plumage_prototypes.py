# cause: nested-workers
"""Few-shot recognition of bird plumage: episodes of N classes, prototypes, cosine logits.

Queries are centred with the mean colour histogram of the support set, which a ``Gallery`` computes once
for each class and keeps.
"""
import time

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOADER_DEFAULTS = {"batch_size": 10, "num_workers": 2}
CLASSES, PER_CLASS, SIDE = 20, 30, 48


def draw_bird(kind, number):
    rng = np.random.default_rng(1000 * kind + number)
    palette = np.random.default_rng(kind).integers(0, 255, (3, 3))
    shade = lambda k: tuple(int(v) for v in np.clip(palette[k] + rng.normal(0, 18, 3), 0, 255))
    img = Image.new("RGB", (SIDE * 2, SIDE * 2), tuple(int(v) for v in rng.integers(120, 220, 3)))
    pen = ImageDraw.Draw(img)
    dx, dy = rng.integers(-8, 9, 2)
    pen.ellipse((25 + dx, 30 + dy, 75 + dx, 70 + dy), fill=shade(0))
    pen.ellipse((60 + dx, 18 + dy, 84 + dx, 42 + dy), fill=shade(1))
    pen.polygon([(30 + dx, 40 + dy), (60 + dx, 45 + dy), (20 + dx, 75 + dy)], fill=shade(2))
    img = img.filter(ImageFilter.GaussianBlur(1.5)).rotate(float(rng.uniform(-20, 20)), Image.BICUBIC)
    return img.resize((SIDE, SIDE), Image.LANCZOS)


class Photos(Dataset):
    """All photographs of one class."""

    def __init__(self, kind, count=PER_CLASS):
        self.kind, self.count = kind, count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        pixels = np.asarray(draw_bird(self.kind, number), dtype=np.float32) / 255
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


class Gallery:
    def __init__(self, kinds, support=15):
        self.kinds, self.support = kinds, support
        self._means = {}

    def mean(self, kind):
        if kind not in self._means:
            total = torch.zeros(3)
            for batch in DataLoader(Photos(kind, self.support), **LOADER_DEFAULTS):
                total += batch.mean((2, 3)).sum(0)
            self._means[kind] = total / self.support
        return self._means[kind]


class Episodes(Dataset):
    """Each item is an episode: support and query images of ``ways`` classes drawn at random."""

    def __init__(self, kinds, length, ways=5, shots=2, queries=2):
        self.gallery = Gallery(kinds)
        self.length, self.ways, self.shots, self.queries = length, ways, shots, queries

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        kinds = np.random.choice(self.gallery.kinds, self.ways, replace=False)
        support, query = [], []
        for kind in kinds:
            photos, centre = Photos(int(kind)), self.gallery.mean(int(kind))[:, None, None]
            picks = np.random.choice(len(photos), self.shots + self.queries, replace=False)
            images = [photos[int(p)] - centre for p in picks]
            support.append(torch.stack(images[:self.shots]))
            query.append(torch.stack(images[self.shots:]))
        return torch.stack(support), torch.stack(query)


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(3), nn.Flatten())

    def forward(self, x):
        lead = x.shape[:-3]
        return nn.functional.normalize(self.net(x.flatten(0, -4)), dim=1).reshape(*lead, -1)


def episode_logits(encoder, support, query):
    prototypes = nn.functional.normalize(encoder(support).mean(2), dim=-1)
    return 10 * torch.einsum("bwqd,bvd->bwqv", encoder(query), prototypes)


def loop(encoder, loader, opt=None):
    hits, count = 0.0, 0
    for support, query in loader:
        logits = episode_logits(encoder, support, query)
        truth = torch.arange(logits.shape[1])[None, :, None].expand(logits.shape[:3])
        loss = nn.functional.cross_entropy(logits.flatten(0, 2), truth.flatten())
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        hits += (logits.argmax(-1) == truth).float().sum().item()
        count += truth.numel()
    return hits / count


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    settings = {**LOADER_DEFAULTS, "batch_size": 4, "persistent_workers": True}
    train = DataLoader(Episodes(list(range(14)), 80), **settings)
    test = DataLoader(Episodes(list(range(14, CLASSES)), 20), **settings)
    encoder = Encoder()
    opt = torch.optim.Adam(encoder.parameters(), lr=2e-3)
    for epoch in range(4):
        began = time.time()
        fit = loop(encoder, train, opt)
        with torch.no_grad():
            print(f"epoch {epoch}: train {fit:.3f} novel classes {loop(encoder, test):.3f} ({time.time() - began:.1f} s)", flush=True)


main()
