# cause: prefetch-memory
"""Self-supervised pre-training on ocean colour maps: many views of each map, agreement loss."""
import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Views:
    """Turns one map into `count` shifted, flipped and rescaled versions."""

    def __init__(self, count, side):
        self.count, self.side = count, side

    def __call__(self, field):
        out = np.empty((self.count, 3, self.side, self.side), np.float32)
        for v in range(self.count):
            dy, dx = np.random.randint(0, field.shape[1] - self.side, 2)
            cut = field[:, dy:dy + self.side, dx:dx + self.side]
            np.multiply(cut[:, :, ::-1] if v % 2 else cut, 0.8 + 0.4 * np.random.rand(), out=out[v])
        return out


class OceanMaps(Dataset):
    def __init__(self, maps, views):
        yy, xx = np.mgrid[0:320, 0:320].astype(np.float32) / 40
        self.base = np.stack([np.sin(yy), np.cos(xx), np.sin(xx + yy)])
        self.phase = np.linspace(0, math.tau, maps, dtype=np.float32)
        self.views = views

    def __len__(self):
        return len(self.phase)

    def __getitem__(self, i):
        field = self.base * np.float32(math.cos(self.phase[i])) + np.float32(0.1)
        return torch.from_numpy(self.views(field))


def flatten_views(x):
    """(maps, views, ...) -> (maps * views, ...), and who belongs to whom."""
    return x.flatten(0, 1), torch.arange(x.shape[0]).repeat_interleave(x.shape[1])


def make_loader(a):
    options = dict(batch_size=a.batch, shuffle=True, drop_last=True, num_workers=a.workers)
    if a.workers:
        # keep about this many maps ready so that a slow map never shows
        options["prefetch_factor"] = max(2, a.ready // (a.batch * a.workers))
    return DataLoader(OceanMaps(a.maps, Views(a.views, a.side)), **options)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(8)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16))

    def forward(self, x):
        return nn.functional.normalize(self.body(self.pool(x)), dim=1)


def agreement(z, owner):
    same = (owner[:, None] == owner[None]).float()
    return nn.functional.binary_cross_entropy_with_logits(z @ z.T * 5, same)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--maps", type=int, default=400)
    p.add_argument("--views", type=int, default=8)
    p.add_argument("--side", type=int, default=224)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--ready", type=int, default=384)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--step-seconds", type=float, default=0.085)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Encoder()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    loader, began = make_loader(a), time.time()
    for step, batch in enumerate(loader):
        x, owner = flatten_views(batch)
        loss = agreement(net(x), owner)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(a.step_seconds)  # momentum encoder on the other node
        if step % 20 == 0:
            print(f"step {step}/{len(loader)} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
