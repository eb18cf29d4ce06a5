# cause: iterator-rebuilt-each-step
"""Small GAN on glyph images, trained by steps instead of epochs."""
import argparse
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Glyphs(Dataset):
    def __init__(self, folder):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as im:
            im = im.convert("L").resize((32, 32), Image.BILINEAR)
        return torch.from_numpy(np.asarray(im, dtype=np.float32) / 127.5 - 1).flatten()


def draw(folder, n):
    rs = np.random.RandomState(0)
    for i in range(n):
        im = Image.new("L", (96, 96))
        d = ImageDraw.Draw(im)
        x, y, r = rs.randint(20, 60), rs.randint(20, 60), rs.randint(8, 20)
        (d.ellipse if i % 2 else d.rectangle)((x - r, y - r, x + r, y + r), fill=255)
        im.save(os.path.join(folder, f"g{i:04d}.png"))


def mlp(*sizes, last=None):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    layers.pop()
    return nn.Sequential(*layers, *([last] if last else []))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--latent", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        draw(folder, 320)
        loader = DataLoader(Glyphs(folder), batch_size=args.batch_size, shuffle=True, num_workers=2, drop_last=True)
        gen = mlp(args.latent, 256, 1024, last=nn.Tanh())
        dis = mlp(1024, 256, 1)
        opt_g = torch.optim.Adam(gen.parameters(), 2e-4, betas=(0.5, 0.9))
        opt_d = torch.optim.Adam(dis.parameters(), 2e-4, betas=(0.5, 0.9))
        start = time.time()
        for step in range(args.steps):
            real = next(iter(loader))
            fake = gen(torch.randn(len(real), args.latent))
            loss_d = torch.relu(1 - dis(real)).mean() + torch.relu(1 + dis(fake.detach())).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            loss_g = -dis(fake).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            if step % 10 == 0:
                print(f"step {step} d {loss_d.item():.3f} g {loss_g.item():.3f} "
                      f"{(time.time() - start) / (step + 1) * 1e3:.0f} ms/step", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
