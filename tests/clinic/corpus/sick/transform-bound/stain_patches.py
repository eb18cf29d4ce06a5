# cause: transform-bound
"""Tumour / stroma patches with optical-density stain augmentation and elastic warps."""
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset

HE = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])


@dataclass
class Augment:
    alpha: float = 9.0
    sigma: float = 5.0
    jitter: float = 0.08
    inverse: np.ndarray = field(default_factory=lambda: np.linalg.inv(HE))

    def stain(self, rgb, rng):
        od = -np.log((rgb.astype(np.float64) + 1) / 256)
        conc = od.reshape(-1, 3) @ self.inverse
        conc *= rng.uniform(1 - self.jitter, 1 + self.jitter, 3)
        conc += rng.uniform(-self.jitter, self.jitter, 3) * 0.1
        return np.clip(256 * np.exp(-(conc @ HE)).reshape(rgb.shape) - 1, 0, 255)

    def field_(self, n, rng):
        noise = Image.fromarray(rng.uniform(-1, 1, (n, n)).astype(np.float32), "F")
        small = noise.convert("F").resize((n // 8, n // 8)).resize((n, n), Image.BICUBIC)
        return np.asarray(small) * self.alpha

    def warp(self, img, rng):
        n = img.shape[0]
        gy, gx = np.mgrid[0:n, 0:n].astype(np.float64)
        y, x = np.clip(gy + self.field_(n, rng), 0, n - 1.001), np.clip(gx + self.field_(n, rng), 0, n - 1.001)
        y0, x0 = y.astype(int), x.astype(int)
        fy, fx = (y - y0)[..., None], (x - x0)[..., None]
        return (img[y0, x0] * (1 - fy) * (1 - fx) + img[y0 + 1, x0] * fy * (1 - fx)
                + img[y0, x0 + 1] * (1 - fy) * fx + img[y0 + 1, x0 + 1] * fy * fx)

    def __call__(self, rgb, rng):
        img = self.warp(self.stain(rgb, rng), rng).astype(np.uint8)
        pil = Image.fromarray(img).filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.2)))
        return np.asarray(pil.rotate(rng.uniform(0, 360), Image.BICUBIC))


class Patches(Dataset):
    def __init__(self, n, size=160, augment=None):
        rng = np.random.default_rng(0)
        self.images = rng.integers(90, 250, (24, size, size, 3), dtype=np.uint8)
        self.n, self.augment = n, augment

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        img = self.images[i % len(self.images)]
        if self.augment:
            img = self.augment(img, np.random.default_rng(torch.randint(2**31, ()).item()))
        return torch.from_numpy(np.ascontiguousarray(img[::4, ::4].transpose(2, 0, 1))).float() / 255, i % 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Patches(360, augment=Augment()), batch_size=12, shuffle=True, num_workers=2,
                       persistent_workers=True, drop_last=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(3):
        total = 0.0
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(train):.4f}", flush=True)


if __name__ == "__main__":
    main()
