# cause: stale-dataset-in-workers
"""Progressive resizing: start at low resolution, raise it after every epoch (tile classification)."""
import io

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


def make_tiles(n, seed):
    rng = np.random.default_rng(seed)
    out = []
    r = np.arange(256)
    for i in range(n):
        label = i % 4
        wave = np.outer(np.cos(r / (4 + 2 * label)), np.sin(r / (3 + 3 * label) + rng.uniform(0, 6)))
        arr = (127 + 90 * wave[..., None] + rng.normal(0, 12, (256, 256, 1)) + np.array([0, 8, -8])).clip(0, 255).astype(np.uint8)
        buf = io.BytesIO()
        Image.fromarray(arr).save(buf, "JPEG", quality=90)
        out.append((buf.getvalue(), label))
    return out


class TileDataset(Dataset):
    def __init__(self, tiles, size):
        self.tiles = tiles
        self.size = size
        self.blur = 2.0

    def set_stage(self, size, blur):
        self.size = size
        self.blur = blur

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        raw, label = self.tiles[i]
        img = Image.open(io.BytesIO(raw)).convert("RGB")
        if self.blur:
            img = img.filter(ImageFilter.GaussianBlur(self.blur))
        img = img.resize((self.size, self.size), Image.BICUBIC)
        x = torch.from_numpy(np.asarray(img, dtype=np.float32) / 255.0).permute(2, 0, 1).contiguous()
        return x, label


class Trainer:
    stages = [(48, 2.0), (64, 1.0), (80, 0.5), (96, 0.0)]

    def __init__(self):
        self.train_set = TileDataset(make_tiles(480, 0), self.stages[0][0])
        self.val_set = TileDataset(make_tiles(96, 1), 96)
        self.val_set.blur = 0.0
        common = dict(batch_size=16, num_workers=2, persistent_workers=True)
        self.train_loader = DataLoader(self.train_set, shuffle=True, drop_last=True, **common)
        self.val_loader = DataLoader(self.val_set, **common)
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=3e-3)

    def run_epoch(self):
        self.net.train()
        losses = []
        for x, y in self.train_loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        good = sum((self.net(x).argmax(1) == y).sum().item() for x, y in self.val_loader)
        return good / len(self.val_set)

    def fit(self):
        for epoch, (size, blur) in enumerate(self.stages):
            self.train_set.set_stage(size, blur)
            loss = self.run_epoch()
            print(f"stage {epoch} ({size}px): loss {loss:.3f} val {self.validate():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(3)
    Trainer().fit()
