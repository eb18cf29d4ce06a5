# cause: thread-pool-after-fork
"""Single image super resolution on random textures: x2, L1 loss, PSNR on a held-out set."""
import argparse
import math
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, root, scale=2, mean=0.5, repeat=4):
        self.paths = [os.path.join(root, n) for n in sorted(os.listdir(root))]
        self.scale, self.mean, self.repeat = scale, mean, repeat

    def __len__(self):
        return len(self.paths) * self.repeat

    def load(self, i):
        with Image.open(self.paths[i % len(self.paths)]) as im:
            return torch.from_numpy(np.array(im, dtype=np.float32) / 255).permute(2, 0, 1)

    def __getitem__(self, i):
        hr = self.load(i)
        y = int(torch.randint(0, hr.shape[1] - 256 + 1, ()))
        x = int(torch.randint(0, hr.shape[2] - 256 + 1, ()))
        hr = (hr - self.mean)[:, y:y + 256, x:x + 256]
        noise = torch.exp(-hr.pow(2)).mul(0.01)
        lr = F.interpolate((hr + noise)[None], scale_factor=1 / self.scale, mode="bicubic", antialias=True)[0]
        return lr, hr


class Upscaler(nn.Module):
    def __init__(self, scale, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1), nn.PReLU(),
                                  nn.Conv2d(width, 3 * scale * scale, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x):
        return self.body(x)


class LoaderSetup:
    """What every loader process does first."""

    def __init__(self, cpus):
        self.cpus = cpus

    def __call__(self, worker_id):
        np.random.seed(torch.initial_seed() % 2 ** 32)
        torch.set_num_threads(self.cpus)


def render(root, n):
    rng = np.random.default_rng(11)
    for k in range(n):
        small = rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(small).resize((320, 320), Image.BICUBIC).save(os.path.join(root, f"{k:03d}.png"))


def corpus_mean(data):
    stack = torch.stack([data.load(i) for i in range(len(data.paths))])
    return float(stack.mean()), float((stack - stack.mean()).pow(2).mean().sqrt())


def psnr(a, b):
    return -10 * math.log10(F.mse_loss(a, b).item() + 1e-9)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=24)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--cpus-per-worker", type=int, default=2)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    root = tempfile.mkdtemp(prefix="tex")
    try:
        render(root, args.images)
        data = Textures(root)
        data.mean, spread = corpus_mean(data)
        print(f"mean {data.mean:.3f} std {spread:.3f}", flush=True)
        net = Upscaler(2)
        opt = torch.optim.Adam(net.parameters(), lr=args.lr)
        loader = DataLoader(data, args.batch, shuffle=True, num_workers=args.workers, worker_init_fn=LoaderSetup(args.cpus_per_worker))
        for step, (lr, hr) in enumerate(loader):
            out = net(lr)
            loss = F.l1_loss(out, hr)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % 4 == 0:
                print(f"step {step:03d} l1 {loss.item():.4f} psnr {psnr(out.detach(), hr):.2f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
