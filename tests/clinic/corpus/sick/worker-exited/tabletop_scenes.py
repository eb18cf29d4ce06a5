# cause: worker-exited
"""Pose estimation on rendered table-top scenes; each scene is described by a one-line script, as in the renderer's shell."""
import argparse
import random
import shlex

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def scene_parser():
    p = argparse.ArgumentParser(prog="scene")
    p.add_argument("--shape", choices=["disc", "box", "ring"], required=True)
    p.add_argument("--at", nargs=2, type=float, metavar=("X", "Y"), default=(0, 0))
    p.add_argument("--size", type=float, default=0.3)
    p.add_argument("--light", type=float, default=1.0)
    p.add_argument("--noise", type=float, default=0.05)
    return p


def render(a, side=64, samples=6):
    img = np.zeros((side, side), np.float32)
    for s in range(samples):                       # supersampling against jagged edges
        off = (s / samples - 0.5) / side
        v, u = np.mgrid[-1:1:side * 1j, -1:1:side * 1j]
        r = np.hypot(u - a.at[0] + off, v - a.at[1] + off)
        m = np.maximum(abs(u - a.at[0] + off), abs(v - a.at[1] + off))
        img += {"disc": r < a.size, "box": m < a.size, "ring": abs(r - a.size) < 0.08}[a.shape]
    img = a.light * img / samples + a.noise * np.random.standard_normal(img.shape)
    return img.astype(np.float32)


class Scenes(Dataset):
    def __init__(self, lines):
        self.lines, self.parser = lines, scene_parser()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        a = self.parser.parse_args(shlex.split(self.lines[i]))
        return torch.from_numpy(render(a))[None], torch.tensor([*a.at, a.size])


def compose(n, seed):
    rnd = random.Random(seed)
    for k in range(n):
        x, y = rnd.uniform(-0.6, 0.6), rnd.uniform(-0.6, 0.6)
        shape = rnd.choice(["disc", "box", "ring"])
        size = "0,25" if k % 277 == 145 else f"{rnd.uniform(0.15, 0.4):.2f}"
        yield f"--shape {shape} --at {x:.3f} {y:.3f} --size {size} --light {rnd.uniform(0.6, 1.2):.2f}"


class PoseNet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(32), nn.ReLU(), nn.Linear(32, 3))


def main():
    torch.manual_seed(0)
    train = Scenes(list(compose(540, 1)))
    loader = DataLoader(train, batch_size=18, num_workers=2, shuffle=True, generator=torch.Generator().manual_seed(5), persistent_workers=True)
    net = PoseNet()
    net(torch.zeros(1, 1, 64, 64))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)
    for epoch in range(4):
        err = 0.0
        for img, pose in loader:
            loss = nn.functional.mse_loss(net(img), pose)
            opt.zero_grad(); loss.backward(); opt.step()
            err += loss.item()
        sched.step()
        print(f"epoch {epoch}: mse {err / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
