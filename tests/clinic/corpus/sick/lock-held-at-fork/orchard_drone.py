# cause: lock-held-at-fork
"""Fruit counting from drone tiles; checkpoints are written in the background while training goes on."""
import argparse
import contextlib
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


class CalibrationBook:
    """White balance per flight. Refined by the trainer, used by the transforms, stored with each checkpoint."""

    def __init__(self, flights):
        self._gain = {f: np.ones(3, np.float32) for f in flights}
        self._busy = threading.RLock()

    @contextlib.contextmanager
    def frozen(self):
        with self._busy:
            yield dict(self._gain)

    def refine(self, flight, mean):
        with self._busy:
            self._gain[flight] = 0.9 * self._gain[flight] + 0.1 * (0.5 / np.maximum(mean, 0.05))

    def gain(self, flight):
        with self._busy:
            return self._gain[flight].copy()


class Balance:
    def __init__(self, book):
        self.book = book

    def __call__(self, image, flight):
        return np.clip(image * self.book.gain(flight), 0, 1)


class Tiles(Dataset):
    def __init__(self, files, transform):
        self.files, self.transform = files, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path = self.files[i]
        flight, _, count = path.stem.split("_")
        image = np.asarray(Image.open(path).convert("RGB").resize((96, 96)), np.float32) / 255
        return torch.from_numpy(self.transform(image, flight)).permute(2, 0, 1).contiguous(), float(count), flight


class Checkpointer:
    def __init__(self, folder, book):
        self.folder, self.book, self.thread = folder, book, None

    def _write(self, state, epoch):
        target = self.folder / f"epoch{epoch}"
        target.mkdir()
        with self.book.frozen() as gains:                 # weights and calibration must belong together
            for i, (name, tensor) in enumerate(state.items()):
                np.save(target / f"{i:02d}.npy", tensor.numpy())
                time.sleep(0.25)                          # network volume
            np.savez(target / "calibration.npz", **gains)

    def save(self, model, epoch):
        if self.thread:
            self.thread.join()
        state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.thread = threading.Thread(target=self._write, args=(state, epoch))
        self.thread.start()


def fly(folder, n):
    rng = np.random.default_rng(2)
    for i in range(n):
        count = int(rng.integers(0, 12))
        img = Image.new("RGB", (192, 192), (40, 90 + 10 * (i % 3), 35))
        draw = ImageDraw.Draw(img)
        for x, y in rng.integers(10, 180, (count, 2)):
            draw.ellipse([x - 6, y - 6, x + 6, y + 6], fill=(210, 40, 30))
        img.save(folder / f"flight{i % 3}_{i:04d}_{count}.png")
    return sorted(folder.glob("*.png"))


def train(root, args):
    files = fly(root, 160)
    book = CalibrationBook([f"flight{k}" for k in range(3)])
    train_set, val_set = Tiles(files[:120], Balance(book)), Tiles(files[120:], Balance(book))
    model = nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                          nn.Linear(128, 1))
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    keeper = Checkpointer(root, book)
    for epoch in range(args.epochs):
        for x, y, flights in DataLoader(train_set, 12, shuffle=True, num_workers=args.workers):
            loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            book.refine(flights[0], x[0].mean((1, 2)).numpy())
        keeper.save(model, epoch)
        with torch.no_grad():
            errors = [(model(x).squeeze(1) - y).abs().mean().item() for x, y, _ in DataLoader(val_set, 10, num_workers=args.workers)]
        print(f"epoch {epoch} loss {loss.item():.3f} val {np.mean(errors):.3f}", flush=True)
    keeper.thread.join()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp())
    try:
        train(folder, p.parse_args())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
