"""Find the boat in harbour pictures. Collages of four pictures are used at first, plain pictures in the end."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64


def paint(folder: Path, count: int):
    rng = np.random.default_rng(33)
    boxes = []
    for k in range(count):
        img = rng.integers(60, 120, (SIZE, SIZE, 3)).astype(np.uint8)
        w, h = rng.integers(10, 24, 2)
        x, y = rng.integers(0, SIZE - w), rng.integers(0, SIZE - h)
        img[y:y + h, x:x + w] = (200, 160, 90)
        Image.fromarray(img).save(folder / f"boat{k:04d}.bmp")
        boxes.append((x, y, x + w, y + h))
    np.save(folder / "boxes.npy", np.array(boxes, np.float32) / SIZE)


class Pictures(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.bmp"))
        self.boxes = np.load(folder / "boxes.npy")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        time.sleep(0.0005)
        with Image.open(self.paths[i]) as img:
            return np.asarray(img, np.float32) / 255, self.boxes[i]


class Collage(Dataset):
    """Puts three further pictures around a picture; the box is the first one's."""

    def __init__(self, pictures, enabled=True):
        self.pictures = pictures
        self.enabled = torch.tensor([int(enabled)]).share_memory_()

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        img, box = self.pictures[i]
        if self.enabled.item():
            canvas = np.zeros((2 * SIZE, 2 * SIZE, 3), np.float32)
            others = [self.pictures[j][0] for j in torch.randint(len(self.pictures), (3,)).tolist()]
            for k, part in enumerate([img, *others]):
                r, c = divmod(k, 2)
                canvas[r * SIZE:(r + 1) * SIZE, c * SIZE:(c + 1) * SIZE] = part
            img, box = canvas[::2, ::2], box / 2
        return torch.from_numpy(np.ascontiguousarray(img)).permute(2, 0, 1), torch.from_numpy(box)


class CloseCollage:
    def __init__(self, last):
        self.last = last

    def on_epoch_start(self, trainer):
        if trainer.epoch == trainer.epochs - self.last:
            print("plain pictures from here on", flush=True)
            trainer.loader.dataset.enabled.zero_()


class Trainer:
    def __init__(self, model, loader, epochs, callbacks=()):
        self.model, self.loader, self.epochs, self.callbacks = model, loader, epochs, callbacks
        self.opt = torch.optim.AdamW(model.parameters(), 1e-3)
        self.epoch = 0

    def fit(self):
        for self.epoch in range(self.epochs):
            for cb in self.callbacks:
                cb.on_epoch_start(self)
            total = 0.0
            for x, y in self.loader:
                loss = nn.functional.l1_loss(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            print(f"epoch {self.epoch}: l1 {total / len(self.loader):.4f}", flush=True)


def detector():
    return nn.Sequential(nn.Conv2d(3, 48, 3, 2), nn.ReLU(), nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(1152, 4), nn.Sigmoid())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pictures", type=int, default=200)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--close-collage", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(30)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        paint(Path(tmp), args.pictures)
        loader = DataLoader(Collage(Pictures(Path(tmp))), 12, shuffle=True, num_workers=2, persistent_workers=True)
        Trainer(detector(), loader, args.epochs, [CloseCollage(args.close_collage)]).fit()


if __name__ == "__main__":
    main()
