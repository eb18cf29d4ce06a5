# cause: shm-exhausted
# also: prefetch-memory
# limits: shm=64M
"""Patch-based lesion segmentation on synthetic CT volumes."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CTPatches(Dataset):
    """Random cubic crops around lesions; volumes are kept as int16 in memory."""

    def __init__(self, volumes, lesions, patch, crops_per_volume):
        self.volumes = volumes
        self.lesions = lesions
        self.patch = patch
        self.crops = crops_per_volume

    def __len__(self):
        return len(self.volumes) * self.crops

    def __getitem__(self, i):
        v = i // self.crops
        rng = np.random.default_rng([i, int(time.time_ns() & 0xFFFF)])
        vol, (centre, radius) = self.volumes[v], self.lesions[v]
        lo = [int(rng.integers(0, s - self.patch + 1)) for s in vol.shape]
        sl = tuple(slice(a, a + self.patch) for a in lo)
        hu = np.clip(vol[sl].astype(np.float32), -200, 300)
        image = (hu + 200.0) / 500.0
        grid = np.ogrid[sl]
        dist2 = sum((g - c) ** 2 for g, c in zip(grid, centre))
        mask = (dist2 <= radius ** 2).astype(np.float32)
        if rng.random() < 0.5:
            image, mask = image[::-1], mask[::-1]
        return {
            "image": torch.from_numpy(np.ascontiguousarray(image))[None],
            "mask": torch.from_numpy(np.ascontiguousarray(mask))[None],
        }


def synth(n, side, seed):
    rng = np.random.default_rng(seed)
    volumes, lesions = [], []
    for _ in range(n):
        vol = rng.integers(-120, 90, size=(side,) * 3, dtype=np.int16)
        centre = rng.integers(side // 3, 2 * side // 3, size=3)
        radius = int(rng.integers(10, 22))
        g = np.ogrid[:side, :side, :side]
        vol[sum((a - c) ** 2 for a, c in zip(g, centre)) <= radius ** 2] += 110
        volumes.append(vol)
        lesions.append((centre.tolist(), radius))
    return volumes, lesions


class TinyVNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.down = nn.Conv3d(1, width, 4, stride=4)
        self.mid = nn.Conv3d(width, width, 3, padding=1)
        self.out = nn.Conv3d(width, 1, 1)

    def forward(self, x):
        h = F.relu(self.down(x))
        h = F.relu(self.mid(h))
        return F.interpolate(self.out(h), scale_factor=4)


def dice_loss(logits, target):
    p = torch.sigmoid(logits)
    inter = (p * target).sum()
    return 1 - (2 * inter + 1) / (p.sum() + target.sum() + 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--patch", type=int, default=96)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--workers", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)

    volumes, lesions = synth(4, 128, seed=11)
    loader = DataLoader(CTPatches(volumes, lesions, args.patch, 24), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, drop_last=True)
    net = TinyVNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        t0, running = time.time(), 0.0
        for batch in loader:
            logits = net(batch["image"])
            loss = dice_loss(logits, batch["mask"]) + F.binary_cross_entropy_with_logits(logits, batch["mask"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        print(f"epoch {epoch}: loss {running / len(loader):.4f}  {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
