# cause: iterator-rebuilt-each-step
"""Leaf disease grading with large effective batches (gradient accumulation)."""
import dataclasses
import itertools
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Setup:
    leaves: int = 256
    micro: int = 8
    accumulate: int = 2
    updates: int = 60
    workers: int = 2
    grades: int = 4
    lr: float = 3e-3


@contextmanager
def workspace():
    root = Path(tempfile.mkdtemp(prefix="leaf"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def photograph(root, setup):
    rng = np.random.default_rng(2)
    for i in range(setup.leaves):
        pixels = rng.integers(60, 110, (96, 96, 3), dtype=np.uint8)
        for _ in range(3 * (i % setup.grades)):
            y, x = rng.integers(0, 88, 2)
            pixels[y:y + 8, x:x + 8] = (150, 120, 40)
        Image.fromarray(pixels).save(root / f"leaf{i:04d}_{i % setup.grades}.png")


class Leaves(Dataset):
    def __init__(self, root, augment):
        self.files = sorted(root.glob("*.png"))
        self.augment = augment

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as im:
            im = self.augment(im.convert("RGB"))
            pixels = np.asarray(im.resize((64, 64), Image.BICUBIC), np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1), int(self.files[i].stem[-1])


def turn_and_soften(im):
    angle = float(torch.randint(-30, 30, (1,)))
    return im.rotate(angle).filter(ImageFilter.GaussianBlur(float(torch.rand(1))))


def update(net, opt, micro_batches, n):
    total = 0.0
    opt.zero_grad()
    for x, y in micro_batches:
        loss = nn.functional.cross_entropy(net(x), y) / n
        loss.backward()
        total += loss.item()
    opt.step()
    return total


def main():
    setup = Setup()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    with workspace() as root:
        photograph(root, setup)
        loader = DataLoader(Leaves(root, turn_and_soften), setup.micro, shuffle=True, num_workers=setup.workers, drop_last=True)
        net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                            nn.Linear(128, setup.grades))
        opt = torch.optim.Adam(net.parameters(), setup.lr)
        began = time.time()
        for n in range(setup.updates):
            loss = update(net, opt, itertools.islice(loader, setup.accumulate), setup.accumulate)
            if n % 10 == 9:
                print(f"update {n + 1} loss {loss:.3f} {(n + 1) / (time.time() - began):.1f} updates/s", flush=True)


if __name__ == "__main__":
    main()
