# cause: unpicklable-dataset
"""Recognise rendered digit strings; glyph bitmaps are memoised."""
import dataclasses
import random
import threading

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Config:
    samples: int = 600
    length: int = 6
    batch: int = 24
    workers: int = 2
    method: str = "forkserver"
    epochs: int = 2


class GlyphCache:
    """Bitmaps are also drawn from the preview thread of the labelling tool."""

    def __init__(self, capacity=64):
        self._data = {}
        self._capacity = capacity
        self._guard = threading.Lock()

    def get(self, ch):
        with self._guard:
            if ch not in self._data:
                if len(self._data) >= self._capacity:
                    self._data.pop(next(iter(self._data)))
                im = Image.new("L", (12, 16), 0)
                ImageDraw.Draw(im).text((3, 2), ch, fill=255)
                self._data[ch] = np.asarray(im, np.float32) / 255
            return self._data[ch]


class LineRenderer:
    def __init__(self):
        self.glyphs = GlyphCache()

    def draw(self, text, rng):
        line = np.concatenate([self.glyphs.get(c) for c in text], axis=1)
        return np.roll(line, rng.randint(-1, 1), 0) + np.random.normal(0, 0.1, line.shape).astype(np.float32)


class DigitLines(Dataset):
    def __init__(self, cfg):
        self.cfg, self.renderer = cfg, LineRenderer()

    def __len__(self):
        return self.cfg.samples

    def __getitem__(self, i):
        rng = random.Random(i)
        text = "".join(rng.choice("0123456789") for _ in range(self.cfg.length))
        return torch.from_numpy(self.renderer.draw(text, rng)).unsqueeze(0), torch.tensor([int(c) for c in text])


class LineNet(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.out = nn.Linear(16 * 8, 10)
        self.length = length

    def forward(self, x):
        f = self.conv(x).flatten(1, 2)
        f = nn.functional.adaptive_avg_pool1d(f, self.length)
        return self.out(f.transpose(1, 2))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.data = DigitLines(cfg)
        self.net = LineNet(cfg.length)
        self.opt = torch.optim.Adam(self.net.parameters(), 2e-3)

    def batches(self):
        return DataLoader(self.data, self.cfg.batch, shuffle=True, num_workers=self.cfg.workers)

    def epoch(self):
        total = n = 0
        for x, y in self.batches():
            loss = nn.functional.cross_entropy(self.net(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total, n = total + loss.item(), n + 1
        return total / n


if __name__ == "__main__":
    config = Config()
    torch.multiprocessing.set_start_method(config.method)
    trainer = Trainer(config)
    for e in range(config.epochs):
        print("epoch", e, "loss %.3f" % trainer.epoch(), flush=True)
