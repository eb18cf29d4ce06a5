"""Side-scan sonar mosaic denoiser. Augmentations draw from one numpy generator per loader process."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class ProcessRng:
    """A numpy Generator made on first use in whatever process uses it, from torch's per-worker seed."""

    def __init__(self):
        self.key, self.gen = None, None

    def __call__(self):
        info = get_worker_info()
        key = info.seed if info is not None else torch.initial_seed()
        if key != self.key:
            self.key, self.gen = key, np.random.default_rng(key)
        return self.gen


class Speckle:
    def __init__(self, rng, looks):
        self.rng, self.looks = rng, looks

    def __call__(self, img):
        return img * self.rng().gamma(self.looks, 1 / self.looks, img.shape)


class Nadir:
    def __init__(self, rng, width):
        self.rng, self.width = rng, width

    def __call__(self, img):
        c = self.rng().integers(self.width, img.shape[1] - self.width)
        out = img.copy()
        out[:, c - self.width:c + self.width] *= 0.1
        return out


class Mosaic(Dataset):
    def __init__(self, n, size, augment):
        self.n, self.size, self.augment = n, size, augment

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = np.random.default_rng(i)
        spec = np.fft.rfft2(g.normal(size=(self.size, self.size)))
        k = np.hypot(np.fft.fftfreq(self.size)[:, None], np.fft.rfftfreq(self.size)[None])
        clean = np.exp(np.fft.irfft2(spec / (0.02 + k), (self.size, self.size)) / 30)
        noisy = clean
        for a in self.augment:
            noisy = a(noisy)
        pair = np.log1p(np.stack([noisy, clean])).astype(np.float32)
        return torch.from_numpy(pair[:1]), torch.from_numpy(pair[1:])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=3)
    a = ap.parse_args()
    torch.manual_seed(77)
    rng = ProcessRng()
    data = Mosaic(480, 160, [Speckle(rng, 3.0), Nadir(rng, 3)])
    loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
    net = nn.Sequential(nn.Conv2d(1, 8, 8, stride=4, padding=2), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, stride=4))
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(a.epochs):
        tot = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"epoch {epoch} mse {tot / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
