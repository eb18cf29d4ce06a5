"""Small DCGAN on procedurally drawn sprites."""
import argparse
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SpriteFolder(Dataset):
    """Draws blobs from a fixed table of shapes, with a random colour jitter and flip at load time."""

    def __init__(self, n=1920, size=32, seed=3):
        table = np.random.RandomState(seed)
        self.size = size
        self.centres = table.uniform(8, size - 8, (n, 4, 2)).astype(np.float32)
        self.radii = table.uniform(2, 7, (n, 4)).astype(np.float32)
        self.colours = table.uniform(-1, 1, (n, 4, 3)).astype(np.float32)
        self.grid = np.stack(np.meshgrid(np.arange(size), np.arange(size)), -1).astype(np.float32)

    def __len__(self):
        return len(self.centres)

    def __getitem__(self, i):
        img = np.full((self.size, self.size, 3), -1, np.float32)
        for c, r, col in zip(self.centres[i], self.radii[i], self.colours[i]):
            d = ((self.grid - c) ** 2).sum(-1)
            w = 1 / (1 + np.exp((d - r * r) / 3))
            img += w[..., None] * (col + 1)
        img = np.clip(img + np.random.normal(0, 0.03, 3).astype(np.float32), -1, 1)
        if np.random.rand() < 0.5:
            img = img[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))


class Generator(nn.Module):
    def __init__(self, z=48, f=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(z, f * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(f * 4), nn.ReLU(True),
            nn.ConvTranspose2d(f * 4, f * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(f * 2), nn.ReLU(True),
            nn.ConvTranspose2d(f * 2, f, 4, 2, 1, bias=False), nn.BatchNorm2d(f), nn.ReLU(True),
            nn.ConvTranspose2d(f, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, f=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, f, 3, 1, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(f, f * 2, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(f * 2, f * 4, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(f * 4, 1, 8))

    def forward(self, x):
        return self.net(x).flatten()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--z", type=int, default=48)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    loader = DataLoader(SpriteFolder(), batch_size=args.batch, shuffle=True, drop_last=True,
                        num_workers=1, persistent_workers=True, prefetch_factor=4)
    g, d = Generator(args.z), Discriminator()
    opt_g = torch.optim.Adam(g.parameters(), 2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    fixed = torch.randn(16, args.z)
    history = []
    out = tempfile.mkdtemp(prefix="dcgan_")
    for epoch in range(args.epochs):
        waited, t0 = 0.0, time.time()
        tick = time.time()
        for step, real in enumerate(loader):
            waited += time.time() - tick
            ones, zeros = torch.ones(len(real)), torch.zeros(len(real))
            fake = g(torch.randn(len(real), args.z))
            loss_d = bce(d(real), ones * 0.9) + bce(d(fake.detach()), zeros)
            opt_d.zero_grad(); loss_d.backward(); opt_d.step()
            loss_g = bce(d(fake), ones)
            opt_g.zero_grad(); loss_g.backward(); opt_g.step()
            history.append((loss_d.item(), loss_g.item()))
            if step == 0:
                # keep a reference image for the contact sheet
                reference = real[:16].clone()
            tick = time.time()
        with torch.no_grad():
            g.eval(); sheet = torch.cat([reference, g(fixed)]); g.train()
        torch.save(sheet, os.path.join(out, f"sheet{epoch}.pt"))
        ld, lg = np.mean(history[-len(loader):], 0)
        print(f"epoch {epoch} D {ld:.3f} G {lg:.3f} time {time.time() - t0:.1f}s data {waited:.2f}s", flush=True)
        assert math.isfinite(ld)


if __name__ == "__main__":
    main()
