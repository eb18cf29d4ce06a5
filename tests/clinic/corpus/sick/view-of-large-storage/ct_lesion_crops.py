# cause: view-of-large-storage
# also: shm-exhausted
# limits: shm=64M
"""Lesion detection on axial CT slices: in-memory studies, random crops, ragged boxes."""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    studies: int = 5
    depth: int = 80
    side: int = 256
    crop: int = 160
    batch: int = 4
    workers: int = 2
    epochs: int = 3
    lr: float = 1e-3
    window: tuple = (-160.0, 240.0)
    holdout: list = field(default_factory=lambda: [4])


def read_study(cfg: Config, uid: int):
    """Stands for the DICOM reader: a volume in Hounsfield units and lesion boxes per slice."""
    g = np.random.default_rng(uid)
    base = g.integers(-200, 300, size=(cfg.depth, cfg.side // 8, cfg.side // 8), dtype=np.int16)
    hu = base.repeat(8, axis=1).repeat(8, axis=2)
    boxes = []
    for z in range(cfg.depth):
        n = int(g.integers(1, 5))
        xy = g.integers(0, cfg.side - 40, size=(n, 2))
        wh = g.integers(12, 40, size=(n, 2))
        boxes.append(np.concatenate([xy, xy + wh], axis=1).astype(np.float32))
    return hu, boxes


class HUWindow:
    def __init__(self, lo, hi):
        self.lo, self.hi = lo, hi

    def __call__(self, vol):
        return ((vol - self.lo) / (self.hi - self.lo)).clamp_(0, 1)


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, img, boxes):
        h, w = img.shape[-2:]
        top = int(torch.randint(0, h - self.size + 1, ()))
        left = int(torch.randint(0, w - self.size + 1, ()))
        img = img[..., top:top + self.size, left:left + self.size]
        shift = torch.tensor([left, top, left, top], dtype=torch.float32)
        boxes = (boxes - shift).clamp(0, self.size)
        keep = ((boxes[:, 2] - boxes[:, 0]) > 4) & ((boxes[:, 3] - boxes[:, 1]) > 4)
        return img, boxes[keep]


class LesionSlices(Dataset):
    def __init__(self, cfg: Config):
        window = HUWindow(*cfg.window)
        self.volumes, self.boxes, self.index = [], [], []
        for uid in range(cfg.studies):
            hu, boxes = read_study(cfg, uid)
            self.volumes.append(window(torch.from_numpy(hu).float()))
            self.boxes.append([torch.from_numpy(b) for b in boxes])
            self.index += [(uid, z) for z in range(1, cfg.depth - 1)]
        self.crop = RandomCrop(cfg.crop)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        uid, z = self.index[i]
        slab = self.volumes[uid][z - 1:z + 2]                # 2.5D input: the slice and its neighbours
        img, boxes = self.crop(slab, self.boxes[uid][z])
        return img, {"boxes": boxes, "study": uid, "z": z}


def collate(samples):
    images, targets = zip(*samples)
    return list(images), list(targets)


class CentreHeatmap(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width * 2, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(width * 2, width * 2, 3, 2, 1), nn.ReLU(), nn.Conv2d(width * 2, 1, 1))

    def forward(self, images):
        return self.body(torch.stack(images))[:, 0]


def heatmap_targets(targets, shape, stride=8):
    out = torch.zeros(shape)
    for k, t in enumerate(targets):
        for x0, y0, x1, y1 in t["boxes"].tolist():
            cx, cy = int((x0 + x1) / 2 / stride), int((y0 + y1) / 2 / stride)
            out[k, min(cy, shape[1] - 1), min(cx, shape[2] - 1)] = 1.0
    return out


def run_epoch(model, loader, opt=None):
    total, n = 0.0, 0
    model.train(opt is not None)
    with torch.set_grad_enabled(opt is not None):
        for images, targets in loader:
            logits = model(images)
            loss = F.binary_cross_entropy_with_logits(logits, heatmap_targets(targets, logits.shape))
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total, n = total + loss.item(), n + 1
    return total / max(n, 1)


def main(cfg: Config):
    torch.manual_seed(0)
    data = LesionSlices(cfg)
    tr = [i for i, (u, _) in enumerate(data.index) if u not in cfg.holdout]
    va = [i for i, (u, _) in enumerate(data.index) if u in cfg.holdout]
    common = dict(batch_size=cfg.batch, num_workers=cfg.workers, collate_fn=collate, persistent_workers=True)
    train = DataLoader(Subset(data, tr), shuffle=True, drop_last=True, **common)
    valid = DataLoader(Subset(data, va), **common)
    model = CentreHeatmap()
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.5 * (1 + math.cos(math.pi * e / cfg.epochs)))
    print(f"{len(tr)} training slices, {len(va)} validation slices", flush=True)
    for epoch in range(cfg.epochs):
        t0 = time.time()
        a = run_epoch(model, train, opt)
        b = run_epoch(model, valid)
        sched.step()
        print(f"[{epoch}] train {a:.4f} valid {b:.4f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main(Config())
