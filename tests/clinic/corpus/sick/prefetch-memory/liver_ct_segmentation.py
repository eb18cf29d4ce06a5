# cause: prefetch-memory
# also: worker-out-of-memory
# limits: memory=1G
"""Liver segmentation on CT patches, 3-D network, random crops with flips and intensity jitter."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("liver")


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, vol, mask, rng):
        for s in self.steps:
            vol, mask = s(vol, mask, rng)
        return vol, mask


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, vol, mask, rng):
        sl = tuple(slice(o, o + s) for o, s in zip((rng.integers(0, d - s + 1) for d, s in zip(vol.shape, self.size)), self.size))
        return vol[sl], mask[sl]


class Flip:
    def __call__(self, vol, mask, rng):
        if rng.random() < 0.5:
            vol, mask = vol[:, :, ::-1], mask[:, :, ::-1]
        return vol, mask


class Window:
    """Hounsfield window to [0, 1]."""

    def __init__(self, lo=-160, hi=240):
        self.lo, self.hi = lo, hi

    def __call__(self, vol, mask, rng):
        vol = vol.astype(np.float32)
        vol -= self.lo
        vol *= rng.uniform(0.95, 1.05) / (self.hi - self.lo)
        return np.clip(vol, 0, 1, out=vol), np.ascontiguousarray(mask)


class LiverPatches(Dataset):
    def __init__(self, scans, patches, transform):
        self.scans, self.patches, self.transform = scans, patches, transform

    def __len__(self):
        return self.patches

    def __getitem__(self, i):
        rng = np.random.default_rng((i, torch.initial_seed() % 2**32))
        vol, mask = self.scans[i % len(self.scans)]
        vol, mask = self.transform(vol, mask, rng)
        return torch.from_numpy(vol)[None], torch.from_numpy(mask)


def load_scans(n, shape=(80, 160, 160)):
    rng = np.random.default_rng(0)
    scans = []
    for _ in range(n):
        vol = rng.integers(-200, 300, shape, dtype=np.int16)
        mask = np.zeros(shape, np.uint8)
        mask[20:60, 40:110, 50:120] = 1
        scans.append((vol, mask))
    return scans


class TinyUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, c, 3, stride=2, padding=1), nn.InstanceNorm3d(c), nn.LeakyReLU())
        self.mid = nn.Sequential(nn.Conv3d(c, 2 * c, 3, stride=2, padding=1), nn.LeakyReLU(),
                                 nn.ConvTranspose3d(2 * c, c, 2, stride=2), nn.LeakyReLU())
        self.up = nn.ConvTranspose3d(2 * c, 1, 2, stride=2)

    def forward(self, x):
        d = self.down(x)
        return self.up(torch.cat([d, self.mid(d)], 1)).squeeze(1)


def dice(logits, mask):
    p = logits.sigmoid()
    return 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--prefetch", type=int, default=20)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    tf = Compose([RandomCrop((80, 144, 144)), Flip(), Window()])
    train = LiverPatches(load_scans(3), 320, tf)
    loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=args.workers,
                        prefetch_factor=args.prefetch, drop_last=True)
    net = TinyUNet()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t0 = time.time()
        for it, (vol, mask) in enumerate(loader):
            opt.zero_grad()
            loss = dice(net(vol), mask.float())
            loss.backward()
            opt.step()
            if it % 4 == 0:
                logger.info("epoch %d it %d/%d dice loss %.4f (%.1fs)", epoch, it, len(loader), loss.item(), time.time() - t0)


if __name__ == "__main__":
    main()
