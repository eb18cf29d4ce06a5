"""Counts cells in fluorescence micrographs; augmentation draws from its own generators."""
import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info, random_split


class Draws:
    """Own stream of random numbers of the augmentation, apart from the one that makes the data."""

    def __init__(self, seed):
        self.g = np.random.default_rng(seed)

    def restart(self, seed):
        self.g = np.random.default_rng(seed)


class Augment:
    def __init__(self, seed):
        self.draws = Draws(seed)

    def __call__(self, image):
        g = self.draws.g
        image = image.rotate(90 * int(g.integers(4)))
        if g.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        image = image.filter(ImageFilter.GaussianBlur(g.uniform(0, 1.2)))
        x = np.asarray(image, np.float32) / 255
        return x * g.uniform(0.8, 1.2) + g.normal(0, 0.03, x.shape).astype(np.float32)


class Micrographs(Dataset):
    def __init__(self, count, seed, side=160):
        g = np.random.default_rng(seed)
        self.side, self.cells, self.seeds = side, g.integers(5, 60, count), g.integers(0, 2**31, count)

    def __len__(self):
        return len(self.cells)

    def __getitem__(self, i):
        g = np.random.default_rng(self.seeds[i])
        image = np.zeros((self.side, self.side), np.float32)
        a = np.arange(self.side, dtype=np.float32)
        for x, y, r in zip(*g.uniform(8, self.side - 8, (2, self.cells[i])), g.uniform(2, 6, self.cells[i])):
            image += np.exp(-0.5 * ((a - x) / r) ** 2)[None] * np.exp(-0.5 * ((a - y) / r) ** 2)[:, None]
        image = g.poisson(40 * image + 3) / 50
        return Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)), float(self.cells[i])


class Prepared(Dataset):
    def __init__(self, part, augment=None):
        self.part, self.augment = part, augment

    def __len__(self):
        return len(self.part)

    def __getitem__(self, i):
        image, n = self.part[i]
        x = self.augment(image) if self.augment else np.asarray(image, np.float32) / 255
        return torch.from_numpy(np.ascontiguousarray(x, np.float32))[None], torch.tensor(n)


def fresh_draws(worker_id):
    info = get_worker_info()
    info.dataset.augment.draws.restart(info.seed)


def density_net(width=8):
    return nn.Sequential(nn.Conv2d(1, width, 5, 2, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 1, 1), nn.Softplus())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=1500)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch", type=int, default=25)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    fit, held = random_split(Micrographs(a.images, 31), [a.images - 100, 100])
    train = DataLoader(Prepared(fit, Augment(seed=2)), a.batch, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0, worker_init_fn=fresh_draws)
    val = DataLoader(Prepared(held), 50)
    net = density_net()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    for epoch in range(a.epochs):
        t, losses = time.time(), []
        for x, n in train:
            loss = nn.functional.smooth_l1_loss(net(x).sum((1, 2, 3)) / 10, n / 10)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        with torch.no_grad():
            off = torch.cat([(net(x).sum((1, 2, 3)) - n).abs() for x, n in val]).mean()
        print(f"epoch {epoch} loss {np.mean(losses):.3f} off by {off:.1f} cells, {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
