# limits: shm=64M
"""Roof segmentation on small tiles."""
import argparse
import pathlib
import tempfile

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


def draw_tiles(folder, n, side):
    rng = np.random.default_rng(3)
    for k in range(n):
        x, y, w, h = (int(v) for v in rng.integers(10, side // 2, 4))
        img = Image.new("RGB", (side, side), (90, 120, 80))
        mask = Image.new("L", (side, side), 0)
        ImageDraw.Draw(img).rectangle([x, y, x + w, y + h], fill=(160, 80, 60))
        ImageDraw.Draw(mask).rectangle([x, y, x + w, y + h], fill=1)
        img.save(folder / f"{k}.jpg")
        mask.save(folder / f"{k}.png")


class Roofs(Dataset):
    def __init__(self, folder, n, side):
        self.folder, self.n, self.side = folder, n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with Image.open(self.folder / f"{i}.jpg") as im:
            im = im.resize((self.side + 32, self.side + 32)).filter(ImageFilter.GaussianBlur(2)).resize((self.side, self.side))
            x = np.asarray(im, np.float32) / 255
        with Image.open(self.folder / f"{i}.png") as im:
            y = np.asarray(im, np.int64)
        k = int(torch.randint(0, 4, ()))
        x, y = np.rot90(x, k), np.rot90(y, k)
        return torch.from_numpy(x.copy()).permute(2, 0, 1), torch.from_numpy(y.copy())


class UNetish(nn.Module):
    def __init__(self, c=10):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.ReLU())
        self.b = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2))
        self.out = nn.Conv2d(3 * c, 2, 1)

    def forward(self, x):
        a = self.a(x)
        return self.out(torch.cat([a, self.b(a)], 1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=128)
    ap.add_argument("--side", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        draw_tiles(folder, a.tiles, a.side)
        train, val = random_split(Roofs(folder, a.tiles, a.side), [0.9, 0.1])
        loader = DataLoader(train, 8, shuffle=True, num_workers=2, prefetch_factor=2, persistent_workers=True)
        val_loader = DataLoader(val, 8)
        model = UNetish()
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(a.epochs):
            model.train()
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            model.eval()
            with torch.no_grad():
                acc = sum((model(x).argmax(1) == y).float().mean().item() for x, y in val_loader) / len(val_loader)
            print(f"epoch {epoch} pixel accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    main()
