# cause: many-small-tensors
# also: workers-not-worth-it
"""Camera-trap animal detector, single stage, converted from the Kaggle notebook (wildlife-2024)."""
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

SEED = 7
EPOCHS = 3
BATCH = 12
IMG = 48
N_FRAMES = 3600
SPECIES = ["fox", "boar", "deer", "badger", "hare"]

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


def build_frames(n):
    """Low-resolution grey frames plus one annotation row per animal."""
    rng = np.random.default_rng(SEED)
    frames = rng.integers(0, 255, (n, 1, IMG, IMG), dtype=np.uint8)
    rows = rng.random((n, 4, 8)).astype(np.float32)
    counts = rng.integers(3, 5, n)
    return frames, rows, counts


class ToFloat:
    def __call__(self, img, target):
        return img.float().div_(255.0), target


class RandomMirror:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, img, target):
        if random.random() < self.p:
            img = img.flip(-1)
            for animal in target["animals"]:
                animal["box"][0] = 1.0 - animal["box"][0]
        return img, target


class Compose:
    def __init__(self, *ts):
        self.ts = ts

    def __call__(self, img, target):
        for t in self.ts:
            img, target = t(img, target)
        return img, target


class CameraTrap(Dataset):
    def __init__(self, frames, rows, counts, transforms):
        self.frames, self.rows, self.counts = frames, rows, counts
        self.transforms = transforms

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        img = torch.from_numpy(self.frames[i].copy())
        animals = []
        for row in self.rows[i, : self.counts[i]]:
            animals.append({
                "box": torch.tensor(row[:4].tolist()),
                "species": torch.tensor(int(row[4] * len(SPECIES))),
                "area": torch.tensor(float(row[2] * row[3])),
                "occluded": torch.tensor(bool(row[5] > 0.8)),
                "distance": torch.tensor(float(row[6] * 30)),
            })
        target = {"animals": animals, "frame_id": torch.tensor(i)}
        return self.transforms(img, target)


def detection_collate(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.box = nn.Linear(256, 4)
        self.cls = nn.Linear(256, len(SPECIES))

    def forward(self, x):
        h = self.body(x)
        return self.box(h).sigmoid(), self.cls(h)


def loss_fn(model, images, targets):
    boxes, logits = model(images)
    nearest = [min(t["animals"], key=lambda a: a["distance"].item()) for t in targets]
    gt_box = torch.stack([a["box"] for a in nearest])
    gt_cls = torch.stack([a["species"] for a in nearest])
    return F.smooth_l1_loss(boxes, gt_box) + F.cross_entropy(logits, gt_cls)


def main():
    data = CameraTrap(*build_frames(N_FRAMES), Compose(RandomMirror(), ToFloat()))
    train_set, valid_set = random_split(data, [3200, 400], generator=torch.Generator().manual_seed(SEED))
    common = dict(batch_size=BATCH, num_workers=2, collate_fn=detection_collate, persistent_workers=True)
    train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **common)
    valid_loader = DataLoader(valid_set, **common)

    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * len(train_loader))
    for epoch in range(EPOCHS):
        t0, total = time.time(), 0.0
        model.train()
        for step, (images, targets) in enumerate(train_loader):
            loss = loss_fn(model, images, targets)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item()
            if step % 40 == 0:
                print(f"e{epoch} s{step:4d} loss {loss.item():.4f} {time.time() - t0:.1f}s", flush=True)
        model.eval()
        with torch.no_grad():
            val = [loss_fn(model, x, t).item() for x, t in valid_loader]
        assert math.isfinite(total)
        print(f"epoch {epoch}: train {total / len(train_loader):.4f} valid {np.mean(val):.4f}", flush=True)


if __name__ == "__main__":
    main()
