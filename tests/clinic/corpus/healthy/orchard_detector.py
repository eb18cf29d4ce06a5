"""Fruit detector on orchard tiles; ragged COCO-like targets are packed by the collate object."""
import argparse
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GRID = 16


class Packed(NamedTuple):
    images: torch.Tensor
    boxes: torch.Tensor   # all boxes of the batch below each other
    owner: torch.Tensor   # the image each box belongs to


class OrchardTiles(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(4)
        self.counts = rng.integers(0, 12, n)
        self.fruit = rng.uniform(0.05, 0.95, (n, 12, 2)).astype(np.float32)
        self.background = rng.uniform(0, 0.3, (3, 64, 64)).astype(np.float32)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        img = self.background.copy()
        centres = self.fruit[i, : self.counts[i]]
        for x, y in centres.tolist():
            cx, cy = int(x * 63), int(y * 63)
            img[0, max(0, cy - 2) : cy + 3, max(0, cx - 2) : cx + 3] = 0.9
        half = np.float32(2.5 / 64)
        return torch.from_numpy(img), np.concatenate([centres - half, centres + half], 1)


class PackTargets:
    def __call__(self, samples):
        images = torch.stack([s[0] for s in samples])
        counts = [len(s[1]) for s in samples]
        boxes = torch.from_numpy(np.concatenate([s[1] for s in samples]))
        return Packed(images, boxes, torch.repeat_interleave(torch.arange(len(samples)), torch.tensor(counts)))


class Detector(nn.Module):
    def __init__(self, c=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1), nn.ReLU(), nn.Conv2d(c, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, 1, 1)
        )

    def forward(self, x):
        return self.net(x).flatten(1)


def heatmap(batch):
    out = torch.zeros(len(batch.images), GRID * GRID)
    cell = ((batch.boxes[:, :2] + batch.boxes[:, 2:]) / 2 * (GRID - 1e-3)).long()
    out[batch.owner, cell[:, 1] * GRID + cell[:, 0]] = 1
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=768)
    ap.add_argument("--epochs", type=int, default=4)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(OrchardTiles(args.tiles), 32, shuffle=True, num_workers=1, collate_fn=PackTargets(), persistent_workers=True)
    model = Detector()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    history = []
    for epoch in range(args.epochs):
        t0, total, kept = time.time(), 0.0, []
        for batch in loader:
            logits = model(batch.images)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, heatmap(batch))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            kept.append(batch.boxes.clone())
        history.append(total / len(loader))
        print(f"epoch {epoch} loss {history[-1]:.4f} boxes {len(torch.cat(kept))} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
