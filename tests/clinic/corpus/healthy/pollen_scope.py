"""Pollen grain classification; slides come from a scanner share, and a shared tally counts what was drawn per class."""
import io
import logging
import multiprocessing
import sys
import time

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("pollen")
KINDS = ("birch", "grass", "hazel")


class Tally:
    """Counts per class over all processes."""

    def __init__(self, size):
        self.lock = multiprocessing.Lock()
        self.counts = multiprocessing.RawArray("l", size)

    def add(self, kind):
        with self.lock:
            self.counts[kind] += 1

    def __str__(self):
        with self.lock:
            return ", ".join(f"{k} {c}" for k, c in zip(KINDS, self.counts))


class Slides:
    def __init__(self, count):
        self.blobs = []
        for i in range(count):
            im = Image.new("RGB", (128, 128), (240, 235, 220))
            d = ImageDraw.Draw(im)
            r = 20 + 12 * (i % 3)
            x, y = 40 + (i * 7) % 40, 40 + (i * 11) % 40
            d.ellipse([x - r, y - r, x + r, y + r], fill=(200, 160 - 30 * (i % 3), 60))
            buf = io.BytesIO()
            im.save(buf, "JPEG", quality=90)
            self.blobs.append(buf.getvalue())

    def read(self, i):
        time.sleep(0.002)
        return self.blobs[i]


class Grains(Dataset):
    def __init__(self, slides, tally):
        self.slides, self.tally = slides, tally

    def __len__(self):
        return len(self.slides.blobs)

    def __getitem__(self, i):
        im = Image.open(io.BytesIO(self.slides.read(i))).convert("RGB")
        im = im.rotate(float(torch.rand(()) * 360), fillcolor=(240, 235, 220))
        im = im.filter(ImageFilter.GaussianBlur(float(torch.rand(())))).resize((64, 64))
        kind = i % 3
        self.tally.add(kind)
        return torch.from_numpy(np.asarray(im, dtype=np.float32).transpose(2, 0, 1) / 255), kind


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def fit(loader, tally, epochs):
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    for epoch in range(epochs):
        began, right = time.time(), 0
        for x, y in loader:
            scores = net(x)
            loss = nn.functional.cross_entropy(scores, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (scores.argmax(1) == y).sum().item()
            time.sleep(0.05)  # stands for the device
        log.info("epoch %d accuracy %.3f drawn: %s (%.1fs)", epoch, right / len(loader.dataset), tally, time.time() - began)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    counts = Tally(len(KINDS))
    fit(DataLoader(Grains(Slides(480), counts), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True), counts, 2)
