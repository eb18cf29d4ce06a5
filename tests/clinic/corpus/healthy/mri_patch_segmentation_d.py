"""Patch-wise lesion segmentation; patch positions and noise level follow the epoch."""
import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Schedule:
    """Epoch counter and noise level, placed where all processes see them."""

    def __init__(self):
        self._epoch = multiprocessing.Value("i", 0)
        self._noise = torch.zeros(1).share_memory_()

    @property
    def epoch(self):
        return self._epoch.value

    @property
    def noise(self):
        return float(self._noise)

    def advance(self, epoch):
        self._epoch.value = epoch
        self._noise.fill_(0.02 * (1 + epoch))


class ScanCohort(Dataset):
    def __init__(self, volumes, patches_per_volume, schedule, patch=64, seed=0):
        rs = np.random.default_rng(seed)
        self.patch, self.seed, self.schedule = patch, seed, schedule
        self.patches_per_volume = patches_per_volume
        self.volumes = rs.normal(0, 0.5, size=(volumes, 12, 160, 160)).astype(np.float32)
        self.masks = np.zeros_like(self.volumes, dtype=bool)
        yy, xx = np.mgrid[:160, :160]
        for v in range(volumes):
            cy, cx, r = rs.integers(40, 120), rs.integers(40, 120), rs.integers(15, 40)
            disc = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            self.masks[v] = disc
            self.volumes[v][:, disc] += 1.0

    def set_epoch(self, epoch):
        self.schedule.advance(epoch)

    def __len__(self):
        return len(self.volumes) * self.patches_per_volume

    def __getitem__(self, idx):
        rng = np.random.default_rng((self.seed, self.schedule.epoch, idx))
        v, z = idx // self.patches_per_volume, rng.integers(0, self.volumes.shape[1])
        y, x = rng.integers(0, 160 - self.patch, size=2)
        window = np.s_[v, z, y:y + self.patch, x:x + self.patch]
        k = int(rng.integers(0, 4))
        image, mask = np.rot90(self.volumes[window], k), np.rot90(self.masks[window], k)
        smooth = np.fft.irfft2(np.fft.rfft2(image, s=(128, 128)) * np.fft.rfft2(np.ones((3, 3)) / 9, s=(128, 128)))
        both = np.stack([image, smooth[:self.patch, :self.patch]])
        both = both + rng.normal(0, self.schedule.noise, size=both.shape)
        return torch.from_numpy(both.astype(np.float32)), torch.from_numpy(mask.astype(np.float32))[None]


class Segmenter(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, 2, 1), nn.ReLU())
        self.up = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
                                nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 1, 1))

    def forward(self, x):
        return self.up(self.down(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    schedule = Schedule()
    cohort = ConcatDataset([ScanCohort(10, 70, schedule, seed=5), ScanCohort(6, 70, schedule, seed=6)])
    loader = DataLoader(cohort, batch_size=args.batch, shuffle=True, num_workers=2, persistent_workers=True,
                        drop_last=True)
    net = Segmenter()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for part in cohort.datasets:
            part.set_epoch(epoch)
        t0, total, waited = time.time(), 0.0, 0.0
        mark = time.time()
        for image, mask in loader:
            waited += time.time() - mark
            loss = nn.functional.binary_cross_entropy_with_logits(net(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            mark = time.time()
        print(f"epoch {epoch} bce {total / len(loader):.4f} noise {schedule.noise:.2f} {time.time() - t0:.1f}s "
              f"data {waited:.2f}s", flush=True)


if __name__ == "__main__":
    main()
