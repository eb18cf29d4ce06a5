# cause: unpicklable-dataset
"""Grasp quality from simulated depth crops. A composable augmentation pipeline, workers via forkserver."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Step:
    def __rshift__(self, other):
        return Chain([self, other])


class Chain(Step):
    def __init__(self, steps):
        self.steps = [s for step in steps for s in (step.steps if isinstance(step, Chain) else [step])]

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


class Maybe(Step):
    def __init__(self, p, inner):
        self.p, self.inner = p, inner

    def __call__(self, x):
        return self.inner(x) if torch.rand(()) < self.p else x


class DropPixels(Step):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return x * (torch.rand_like(x) > self.rate)


class Rotate(Step):
    def __init__(self, degrees):
        self.limit = math.radians(degrees)

    def __call__(self, x):
        a = float(torch.empty(1).uniform_(-self.limit, self.limit))
        m = torch.tensor([[[math.cos(a), -math.sin(a), 0], [math.sin(a), math.cos(a), 0]]])
        grid = F.affine_grid(m, (1, *x.shape), align_corners=False)
        return F.grid_sample(x[None], grid, align_corners=False)[0]


class SensorNoise(Step):
    """Depth noise; the model maps metres to a standard deviation."""

    MODELS = {
        "none": None,
        "kinect": lambda z: 0.0012 + 0.0019 * (z - 0.4) ** 2,
        "stereo": lambda z: 0.004 * z ** 2,
    }

    def __init__(self, sensor):
        self.sigma = self.MODELS[sensor]

    def __call__(self, x):
        return x if self.sigma is None else x + torch.randn_like(x) * self.sigma(x)


def build_augment(sensor, strength):
    tail = Maybe(0.5, DropPixels(0.02 * strength)) >> Maybe(0.3, SensorNoise(sensor))
    return Rotate(20 * strength) >> Maybe(0.9, tail)


class DepthCrops(Dataset):
    def __init__(self, n, augment=None, seed=0):
        self.n, self.augment, self.seed = n, augment, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        yy, xx = np.mgrid[-1:1:48j, -1:1:48j]
        w, off = rng.uniform(0.1, 0.9), rng.uniform(-0.5, 0.5)
        z = 0.9 - 0.2 * (np.abs(xx - off) < w / 2) - 0.05 * yy
        x = torch.from_numpy(z.astype(np.float32))[None]
        y = float(abs(off) < 0.25 and w < 0.6)
        return (self.augment(x) if self.augment else x), y


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--sensor", default="kinect", choices=sorted(SensorNoise.MODELS))
    p.add_argument("--strength", type=float, default=1.0)
    p.add_argument("--mp", default="forkserver", choices=["fork", "forkserver", "spawn"])
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(DepthCrops(3000, build_augment(args.sensor, args.strength)), batch_size=50, shuffle=True,
                        num_workers=args.workers, multiprocessing_context=args.mp, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 8, 5, 2), nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(1))
    net(torch.zeros(1, 1, 48, 48))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(args.epochs):
        tot = 0.0
        for x, y in loader:
            loss = F.binary_cross_entropy_with_logits(net(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"epoch {epoch} bce {tot / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
