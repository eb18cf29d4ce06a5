# cause: transform-bound
# also: not-fed-fast-enough
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Args:
    images: int = 700
    side: int = 160
    batch: int = 14
    workers: int = 2
    lr: float = 2e-3


class Compose:
    def __init__(self, *ops):
        self.ops = ops

    def __call__(self, im):
        for op in self.ops:
            im = op(im)
        return im


class Elastic:
    def __init__(self, strength, sigma):
        self.strength, self.sigma = strength, sigma

    def _noise(self, shape):
        n = Image.fromarray((torch.rand(shape).numpy() * 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(self.sigma))
        return (np.asarray(n, dtype=np.float32) - 127) * self.strength

    def __call__(self, im):
        a = np.asarray(im, dtype=np.float32)
        h, w = a.shape
        yy, xx = np.mgrid[0:h, 0:w]
        y = np.clip(yy + self._noise(a.shape), 0, h - 1.001)
        x = np.clip(xx + self._noise(a.shape), 0, w - 1.001)
        y0, x0 = y.astype(int), x.astype(int)
        fy, fx = y - y0, x - x0
        out = (a[y0, x0] * (1 - fy) * (1 - fx) + a[y0 + 1, x0] * fy * (1 - fx) + a[y0, x0 + 1] * (1 - fy) * fx + a[y0 + 1, x0 + 1] * fy * fx)
        return Image.fromarray(out.astype(np.uint8))


class Denoise:
    def __call__(self, im):
        for _ in range(3):
            im = im.filter(ImageFilter.MedianFilter(5)).filter(ImageFilter.GaussianBlur(1.5))
        return im


class Finish:
    def __call__(self, im):
        a = np.asarray(im.resize((28, 28), Image.LANCZOS), dtype=np.float32) / 255
        return torch.from_numpy(a)


class Digits(Dataset):
    def __init__(self, n, side, transform):
        self.n, self.side, self.transform = n, side, transform

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        im = Image.new("L", (40, 40), 0)
        ImageDraw.Draw(im).text((14, 12), str(i % 10), fill=255)
        return self.transform(im.resize((self.side, self.side))), i % 10


def main():
    a = Args()
    torch.set_num_threads(1)
    data = Digits(a.images, a.side, Compose(Elastic(0.4, 6), Denoise(), Finish()))
    loader = DataLoader(data, a.batch, shuffle=True, num_workers=a.workers, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 96), nn.ReLU(), nn.Linear(96, 10))
    opt = torch.optim.Adam(model.parameters(), lr=a.lr)
    for step, (x, y) in enumerate(loader):
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.3f} accuracy {(out.argmax(1) == y).float().mean():.2f}", flush=True)


if __name__ == "__main__":
    main()
