# cause: transform-bound
"""Galaxy shape estimation; every exposure is warped, blurred and resampled before the network sees it."""
import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageChops, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, im):
        for s in self.steps:
            im = s(im)
        return im


class Shear:
    def __call__(self, im):
        a, b = (torch.rand(2) * 0.2 - 0.1).tolist()
        return im.transform(im.size, Image.AFFINE, (1, a, 0, b, 1, 0), Image.BICUBIC)


class Seeing:
    """Atmospheric blur, then subtract a wide background estimate."""

    def __init__(self, wide):
        self.wide = wide

    def __call__(self, im):
        sharp = im.filter(ImageFilter.GaussianBlur(1 + float(torch.rand(1))))
        return ImageChops.subtract(sharp, sharp.filter(ImageFilter.MedianFilter(self.wide)))


class Detector:
    def __init__(self, side):
        self.side = side

    def __call__(self, im):
        return np.asarray(im.resize((self.side, self.side), Image.LANCZOS), np.float32) / 255


class Exposures(Dataset):
    def __init__(self, folder, transform):
        self.files, self.transform = sorted(folder.glob("*.png")), transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as im:
            x = self.transform(im.convert("L"))
        return torch.from_numpy(x)[None], torch.tensor(int(self.files[i].stem.split("_")[1]) / 10)


def expose(folder, count, side):
    yy, xx = np.mgrid[-1:1:side * 1j, -1:1:side * 1j]
    rng = np.random.default_rng(0)
    for i in range(count):
        q = 3 + i % 7
        blob = np.exp(-((xx * q / 5) ** 2 + yy ** 2) * 12) * 200 + rng.random((side, side)) * 20
        Image.fromarray(blob.astype(np.uint8)).save(folder / f"e{i:04d}_{q}.png", compress_level=1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--exposures", type=int, default=240)
    p.add_argument("--side", type=int, default=160)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="stars"))
    try:
        expose(folder, a.exposures, a.side)
        chain = Compose(Shear(), Seeing(13), Detector(64))
        loader = DataLoader(Exposures(folder, chain), a.batch, shuffle=True, num_workers=a.workers)
        net = nn.Sequential(nn.Conv2d(1, 6, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))
        net(torch.zeros(1, 1, 64, 64))
        opt = torch.optim.Adam(net.parameters(), 1e-3)
        began = time.time()
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(net(x)[:, 0], y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 5 == 0:
                print(f"step {step}/{len(loader)} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
        print(f"done in {time.time() - began:.1f}s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
