"""Weld seam inspection: JPEG crops from the line camera, residual CNN, unreadable pictures replaced by a neighbour."""
import io
import logging
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageFilter, UnidentifiedImageError
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("weld")


@dataclass
class Config:
    pictures: int = 800
    side: int = 64
    batch: int = 16
    epochs: int = 3
    workers: int = 2
    lr: float = 1e-3
    seed: int = 13


class BrokenPicture(Exception):
    def __init__(self, path, cause):
        super().__init__(path, cause)
        self.path, self.cause = path, cause


def photograph(folder, cfg):
    rng = np.random.default_rng(cfg.seed)
    names, labels = [], []
    for i in range(cfg.pictures):
        label = int(rng.random() < 0.4)
        picture = rng.normal(110, 18, (96, 96))
        picture[44:52] += 60 + 8 * np.sin(np.arange(96) / 3)
        if label:
            for _ in range(3):
                c = int(rng.integers(8, 84))
                picture[44:52, c : c + 5] -= 90
        buffer = io.BytesIO()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        data = buffer.getvalue()
        if i % 97 == 50:
            data = b"\x00" * 64 + data[200:]
        names.append(f"seam_{i:05d}.jpg")
        labels.append(label)
        with open(os.path.join(folder, names[-1]), "wb") as stream:
            stream.write(data)
    return names, labels


def read_picture(path):
    try:
        with Image.open(path) as image:
            return image.convert("L").filter(ImageFilter.MedianFilter(3))
    except (UnidentifiedImageError, OSError) as error:
        raise BrokenPicture(path, str(error)) from error


class Jitter:
    """Rotation, crop and contrast from numpy's global generator."""

    def __init__(self, side):
        self.side = side

    def __call__(self, image):
        image = image.rotate(np.random.uniform(-6, 6), resample=Image.BILINEAR, fillcolor=110)
        room = image.width - self.side
        left, top = np.random.randint(0, room, 2)
        x = np.asarray(image.crop((left, top, left + self.side, top + self.side)), dtype=np.float32) / 255
        return (x - x.mean()) * np.random.uniform(0.8, 1.2)


class Centre:
    def __init__(self, side):
        self.side = side

    def __call__(self, image):
        a = (image.width - self.side) // 2
        x = np.asarray(image.crop((a, a, a + self.side, a + self.side)), dtype=np.float32) / 255
        return x - x.mean()


class Seams(Dataset):
    def __init__(self, folder, names, labels, view):
        self.folder, self.names, self.labels, self.view = folder, np.array(names), np.array(labels), view

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        for shift in range(5):
            j = (i + shift) % len(self)
            try:
                x = self.view(read_picture(os.path.join(self.folder, str(self.names[j]))))
                return torch.from_numpy(np.ascontiguousarray(x))[None], int(self.labels[j])
            except BrokenPicture as error:
                log.debug("skip %s", error.path)
        raise RuntimeError(f"five broken pictures in a row from {i}")


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def build_model():
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(), Residual(16), Residual(16),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 2))


def main(cfg):
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="weld-") as folder:
        names, labels = photograph(folder, cfg)
        cut = cfg.pictures * 4 // 5
        train_set = Seams(folder, names[:cut], labels[:cut], Jitter(cfg.side))
        valid_set, _ = random_split(Seams(folder, names[cut:], labels[cut:], Centre(cfg.side)), [0.75, 0.25])
        train = DataLoader(train_set, cfg.batch, shuffle=True, drop_last=True, num_workers=cfg.workers, persistent_workers=True)
        valid = DataLoader(valid_set, cfg.batch, num_workers=1, persistent_workers=True)
        example, _ = next(iter(valid))
        model = build_model()
        log.info("input %s, %d parameters", tuple(example.shape), sum(p.numel() for p in model.parameters()))
        optimiser = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        for epoch in range(cfg.epochs):
            begin = time.time()
            model.train()
            for x, y in train:
                loss = nn.functional.cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            model.eval()
            with torch.no_grad():
                hits = torch.cat([model(x).argmax(1) == y for x, y in valid]).float().mean()
            log.info("epoch %d loss %.3f accuracy %.3f in %.1f s", epoch, loss.item(), hits, time.time() - begin)
            torch.save({"epoch": epoch, "model": model.state_dict()}, os.path.join(folder, "latest.pt"))


if __name__ == "__main__":
    main(Config())
