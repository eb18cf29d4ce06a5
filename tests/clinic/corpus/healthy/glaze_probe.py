"""Glaze defect classifier. The first batch is drawn once to size the lazy layers and set the input statistics."""
import argparse
import io
import random
import time

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset


def fire(count, side):
    """Encoded photographs, as one bytes object with offsets."""
    rng, parts, ends = np.random.default_rng(1), [], [0]
    for i in range(count):
        tile = rng.normal(120, 6, (side, side, 3))
        if i % 2:
            tile[np.abs(np.arange(side) - side // 2 - i % 9) < 3] -= 50
        out = io.BytesIO()
        Image.fromarray(tile.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=85)
        parts.append(out.getvalue())
        ends.append(ends[-1] + len(parts[-1]))
    return b"".join(parts), np.array(ends)


class Glazes(Dataset):
    def __init__(self, blob, ends):
        self.blob, self.ends = blob, ends

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, i):
        photo = Image.open(io.BytesIO(self.blob[self.ends[i]:self.ends[i + 1]]))
        photo = ImageEnhance.Contrast(photo).enhance(random.uniform(0.8, 1.2))
        photo = photo.rotate(random.uniform(-8, 8), Image.BICUBIC).resize((72, 72), Image.LANCZOS)
        return torch.from_numpy(np.asarray(photo, np.float32) / 255).permute(2, 0, 1), i % 2


class GlazeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("std", torch.ones(1))
        self.body = nn.Sequential(nn.LazyConv2d(8, 5, stride=3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.LazyLinear(2))

    @torch.no_grad()
    def size_to(self, x):
        self.mean, self.std = x.mean()[None], x.std()[None]
        self(x)

    def forward(self, x):
        return self.body((x - self.mean) / self.std)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tiles", type=int, default=288)
    p.add_argument("--side", type=int, default=192)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Glazes(*fire(a.tiles, a.side)), a.batch, shuffle=True, num_workers=2, persistent_workers=True)
    net = GlazeNet()
    net.size_to(next(iter(loader))[0])
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(a.epochs):
        began, right = time.time(), 0
        for x, y in loader:
            out = net(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == y).sum().item()
            time.sleep(0.07)  # second tower on the accelerator
        print(f"epoch {epoch} accuracy {right / a.tiles:.2f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
