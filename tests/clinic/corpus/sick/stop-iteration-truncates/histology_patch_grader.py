# cause: stop-iteration-truncates
"""Grades tissue from random patches of small slides; background patches are avoided."""
import io
import logging
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger("grader")

SLIDE, PATCH, GRADES = 224, 48, 3


def stain_slide(number):
    rng = np.random.default_rng(number)
    grade = int(rng.integers(GRADES))
    image = Image.new("RGB", (SLIDE, SLIDE), (243, 240, 244))
    pen = ImageDraw.Draw(image)
    blobs = int(rng.integers(6, 12)) if number % 97 != 61 else 0
    for _ in range(blobs):
        x, y = rng.uniform(20, SLIDE - 20, 2)
        r = rng.uniform(18, 36)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(190 - 25 * grade, 110, 170 - 20 * grade))
        for _ in range(6 + 8 * grade):
            u, v = rng.normal((x, y), r / 2)
            pen.ellipse((u - 2, v - 2, u + 2, v + 2), fill=(80, 40, 120))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue(), grade


class SlideStore:
    """PNG files of all slides, one after the other."""

    def __init__(self, count, first):
        blobs, grades = zip(*(stain_slide(first + k) for k in range(count)))
        self.grades = np.array(grades)
        self.ends = np.cumsum([len(b) for b in blobs])
        self.data = np.frombuffer(b"".join(blobs), dtype=np.uint8)

    def open(self, number):
        start = self.ends[number - 1] if number else 0
        return Image.open(io.BytesIO(self.data[start:self.ends[number]].tobytes())).convert("RGB")


class PatchSampler:
    """Looks at positions in random order and takes the first one with enough tissue under it."""

    def __init__(self, size=PATCH, tissue=0.35, step=16):
        self.size, self.tissue, self.step = size, tissue, step

    def positions(self, pixels):
        grid = np.stack(np.meshgrid(*(np.arange(0, s - self.size + 1, self.step) for s in pixels.shape[:2])), -1).reshape(-1, 2)
        for k in torch.randperm(len(grid)).tolist():
            yield grid[k]

    def coverage(self, pixels, where):
        window = pixels[where[0]:where[0] + self.size, where[1]:where[1] + self.size]
        return (window[..., 1] < 200).mean()

    def __call__(self, pixels):
        suitable = (p for p in self.positions(pixels) if self.coverage(pixels, p) >= self.tissue)
        y, x = next(suitable)
        return pixels[y:y + self.size, x:x + self.size]


class PatchDataset(Dataset):
    def __init__(self, store, sampler):
        self.store, self.sampler = store, sampler

    def __len__(self):
        return len(self.store.grades)

    def __getitem__(self, index):
        with self.store.open(index) as slide:
            pixels = np.asarray(slide)
        patch = self.sampler(pixels).astype(np.float32) / 255.0
        if torch.rand(()) < 0.5:
            patch = patch[:, ::-1]
        density = -np.log(patch + 0.02)
        return torch.from_numpy(np.ascontiguousarray(density.transpose(2, 0, 1))), int(self.store.grades[index])


def make_model():
    return nn.Sequential(nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, GRADES))


class Session:
    def __init__(self, train_slides=620, val_slides=60, workers=2):
        options = dict(batch_size=16, num_workers=workers, persistent_workers=True)
        self.train = DataLoader(PatchDataset(SlideStore(train_slides, 0), PatchSampler()), shuffle=True, **options)
        self.val = DataLoader(PatchDataset(SlideStore(val_slides, 3000), PatchSampler()), **options)
        self.model = make_model()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.criterion = nn.CrossEntropyLoss()

    def run(self, epochs=4):
        for epoch in range(epochs):
            started, total = time.perf_counter(), 0.0
            self.model.train()
            for patch, grade in self.train:
                loss = self.criterion(self.model(patch), grade)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item() / len(self.train)
            self.model.eval()
            with torch.no_grad():
                hits = [(self.model(patch).argmax(1) == grade).float().mean().item() for patch, grade in self.val]
            logger.info("epoch %d loss %.4f val accuracy %.3f (%.1f s)", epoch, total, np.mean(hits), time.perf_counter() - started)


if __name__ == "__main__":
    torch.manual_seed(42)
    Session().run()
