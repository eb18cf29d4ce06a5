# cause: wrong-length
"""2-D segmentation of vertebrae in spine MRI, slice by slice, on synthetic phantoms."""
import argparse
import bisect
import logging
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("spine")


@dataclass
class Scan:
    patient: str
    voxels: np.ndarray      # depth, height, width; int16
    mask: np.ndarray        # same shape; uint8
    spacing: float


def phantom(k, side=80):
    """A column of blocks in noise. Protocols differ in the number of slices."""
    rng = np.random.default_rng(500 + k)
    depth = int(rng.choice([20, 24, 28, 36]))
    z, y, x = np.mgrid[:depth, :side, :side].astype(np.float32)
    centre = side / 2 + 6 * np.sin(y / side * 3 + k)
    body = (np.abs(x - centre) < 11) & (np.abs(z - depth / 2) < depth * 0.35) & ((y % 16) > 4)
    volume = 200 + 500 * body + rng.normal(0, 90, body.shape)
    return Scan(f"P{k:03d}", volume.astype(np.int16), body.astype(np.uint8), float(rng.uniform(2.5, 4.5)))


class SliceDataset(Dataset):
    """All axial slices of a list of scans, addressed by one flat index."""

    def __init__(self, scans, slices_per_scan=20, size=96, augment=False):
        self.scans = scans
        self.slices_per_scan = slices_per_scan
        self.size = size
        self.augment = augment
        self.starts = [0]
        for scan in scans:
            self.starts.append(self.starts[-1] + len(scan.voxels))

    def __len__(self):
        return len(self.scans) * self.slices_per_scan

    def locate(self, index):
        which = bisect.bisect_right(self.starts, index) - 1
        if index < 0 or which >= len(self.scans):
            raise IndexError(index)
        return self.scans[which], index - self.starts[which]

    @staticmethod
    def bias_field(image, order=3):
        """Removes slow intensity drift by a least-squares polynomial."""
        h, w = image.shape
        yy, xx = np.mgrid[-1:1:h * 1j, -1:1:w * 1j]
        basis = np.stack([(yy ** a * xx ** b).ravel() for a in range(order) for b in range(order - a)], 1)
        coef, *_ = np.linalg.lstsq(basis[::7], image.ravel()[::7], rcond=None)
        return image - (basis @ coef).reshape(h, w)

    def __getitem__(self, index):
        scan, k = self.locate(index)
        image = self.bias_field(scan.voxels[k].astype(np.float32))
        low, high = np.percentile(image, (1, 99))
        image = np.clip((image - low) / (high - low + 1e-6), 0, 1)
        x = torch.from_numpy(image.astype(np.float32))[None]
        y = torch.from_numpy(scan.mask[k].astype(np.float32))[None]
        x = F.interpolate(x[None], size=(self.size, self.size), mode="bicubic", antialias=True)[0]
        y = F.interpolate(y[None], size=(self.size, self.size), mode="nearest")[0]
        if self.augment and torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        return x, y


class TinyUNet(nn.Module):
    def __init__(self, c=7):
        super().__init__()
        self.enc1 = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU())
        self.enc2 = nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.ReLU())
        self.out = nn.Conv2d(3 * c, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.mid(self.enc2(F.max_pool2d(a, 2)))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.out(torch.cat([a, b], 1))


def dice(logits, target):
    p = (logits > 0).float()
    return (2 * (p * target).sum() / (p.sum() + target.sum() + 1e-6)).item()


def train_one_epoch(model, loader, opt):
    model.train()
    total = 0.0
    for x, y in loader:
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return float(np.mean([dice(model(x), y) for x, y in loader]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scans", type=int, default=26)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)

    scans = [phantom(k) for k in range(args.scans)]
    cut = args.scans - 5
    options = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=True)
    train_loader = DataLoader(SliceDataset(scans[:cut], augment=True), shuffle=True, **options)
    valid_loader = DataLoader(SliceDataset(scans[cut:]), **options)
    model = TinyUNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, train_loader, opt)
        log.info("epoch %d  loss %.4f  dice %.3f", epoch, loss, evaluate(model, valid_loader))


if __name__ == "__main__":
    main()
