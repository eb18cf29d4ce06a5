# cause: handle-shared-across-fork
"""Land cover classification from two packed archives of image chips."""
import argparse
import io
import os
import tempfile
import zipfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

KINDS = ["water", "forest", "urban", "crop"]


class Package:
    def __init__(self, path):
        self._archive = zipfile.ZipFile(path)
        self.names = [n for n in self._archive.namelist() if n.endswith(".png")]

    def image(self, name):
        return Image.open(io.BytesIO(self._archive.read(name))).convert("RGB")


class Region:
    def __init__(self, path):
        self.package = Package(path)
        self.title = os.path.basename(path)

    def __iter__(self):
        return iter(self.package.names)


class Chips(Dataset):
    def __init__(self, region, train=True):
        self.region, self.train = region, train
        self.items = [(n, KINDS.index(n.split("/")[0])) for n in region]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, label = self.items[i]
        x = np.asarray(self.region.package.image(name), dtype=np.float32) / 255
        x = torch.from_numpy(x).permute(2, 0, 1)
        if self.train and torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x, label


def pack(path, n, seed):
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for i in range(n):
            k = i % len(KINDS)
            chip = rng.integers(0, 90, (72, 72, 3)) + np.array([[0, 0, 150], [0, 140, 0], [120, 120, 120], [150, 140, 0]])[k]
            buf = io.BytesIO()
            Image.fromarray(chip.clip(0, 255).astype(np.uint8)).save(buf, "PNG")
            z.writestr(f"{KINDS[k]}/{i:04d}.png", buf.getvalue())
    return path


class SmallNet(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(32, n)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def train_epoch(model, loader, opt, accumulate):
    model.train()
    running = 0.0
    for k, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y)
        (loss / accumulate).backward()
        if k % accumulate == 0:
            opt.step()
            opt.zero_grad()
        running += loss.item()
    return running / k


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chips", type=int, default=500)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=4)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        regions = [Region(pack(os.path.join(tmp, f"region{r}.zip"), args.chips, r)) for r in range(2)]
        data = ConcatDataset([Chips(r) for r in regions])
        model = SmallNet(len(KINDS))
        opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0)
        for e in range(args.epochs):
            print(f"epoch {e} loss {train_epoch(model, loader, opt, 2):.4f}", flush=True)


if __name__ == "__main__":
    main()
