# cause: rng-repeated
# also: workers-restarted
"""Land-cover classification on small satellite tiles."""
import argparse
import atexit
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES = ["water", "forest", "crop", "urban"]


def render_tiles(root, count, size=112):
    rs = np.random.RandomState(11)
    rows = []
    for i in range(count):
        label = i % len(CLASSES)
        base = rs.normal(60 + 40 * label, 18, (size, size, 3))
        base[:: 2 + label] += 20
        path = os.path.join(root, f"tile_{i:05d}.png")
        Image.fromarray(base.clip(0, 255).astype("uint8")).save(path, compress_level=1)
        rows.append((path, label))
    return rows


class TileDataset(Dataset):
    def __init__(self, rows, crop=64, seed=2024):
        self.rows = rows
        self.crop = crop
        self.gen = np.random.default_rng(seed)

    def __len__(self):
        return len(self.rows)

    def _augment(self, img):
        h, w = img.shape[:2]
        top = int(self.gen.integers(0, h - self.crop))
        left = int(self.gen.integers(0, w - self.crop))
        img = img[top:top + self.crop, left:left + self.crop]
        if self.gen.random() < 0.5:
            img = img[:, ::-1]
        gain = self.gen.uniform(0.7, 1.3, size=(1, 1, 3))
        img = img * gain + self.gen.normal(0, 4.0, size=img.shape)
        return img

    def __getitem__(self, i):
        path, label = self.rows[i]
        with Image.open(path) as im:
            img = np.asarray(im.convert("RGB"), dtype=np.float32)
        img = self._augment(img) / 255.0
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1), dtype=np.float32)), label


class SmallNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="tiles_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    rows = render_tiles(root, 192)
    loader = DataLoader(TileDataset(rows), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, drop_last=True)
    model = SmallNet(len(CLASSES))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        t0, total, hits, seen = time.time(), 0.0, 0, 0
        for x, y in loader:
            out = model(x)
            loss = loss_fn(out, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
            hits += (out.argmax(1) == y).sum().item()
            seen += len(y)
        print(f"epoch {epoch} loss {total / seen:.4f} acc {hits / seen:.3f} ({time.time() - t0:.1f}s)")


if __name__ == "__main__":
    main()
