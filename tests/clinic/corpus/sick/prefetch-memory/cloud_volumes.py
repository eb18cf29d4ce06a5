# cause: prefetch-memory
"""Precipitation nowcasting from stacks of radar volumes (small 3-D network, synthetic atmosphere)."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOADER = {"num_workers": 2, "prefetch_factor": 32, "batch_size": 4, "drop_last": True}


class Atmosphere(Dataset):
    """One item: a few minutes of a drifting rain field on several altitude levels."""

    def __init__(self, cases, levels, frames, side):
        self.cases, self.levels, self.frames, self.side = cases, levels, frames, side
        self.grid = torch.linspace(-3, 3, side)

    def __len__(self):
        return self.cases

    def __getitem__(self, i):
        cx, cy, vx, vy, size = (torch.rand(5) * 2 - 1).tolist()
        volume = torch.empty(self.frames, self.levels, self.side, self.side)
        for t in range(self.frames):
            gx = torch.exp(-((self.grid - cx - 0.2 * t * vx) / (1 + 0.5 * size)) ** 2)
            gy = torch.exp(-((self.grid - cy - 0.2 * t * vy) / (1 + 0.5 * size)) ** 2)
            sheet = torch.outer(gy, gx)
            for level in range(self.levels):
                torch.mul(sheet, 1.0 / (1 + 0.1 * level), out=volume[t, level])
        future = F.avg_pool2d(volume[-1:, 0:1], 16)[0, 0]
        return {"volume": volume, "rain": future, "case": i}


class Nowcaster(nn.Module):
    def __init__(self, frames, levels):
        super().__init__()
        self.squeeze = nn.Conv2d(frames * levels, 8, 1)
        self.mix = nn.Conv2d(8, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, volume):
        b, t, l, h, w = volume.shape
        x = volume[..., ::16, ::16].reshape(b, t * l, h // 16, w // 16)
        return self.out(torch.relu(self.mix(torch.relu(self.squeeze(x))))).squeeze(1)


class Ema:
    def __init__(self, decay=0.9):
        self.decay, self.value = decay, None

    def __call__(self, x):
        self.value = x if self.value is None else self.decay * self.value + (1 - self.decay) * x
        return self.value


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--cases", type=int, default=400)
    p.add_argument("--levels", type=int, default=8)
    p.add_argument("--frames", type=int, default=6)
    p.add_argument("--side", type=int, default=160)
    p.add_argument("--accumulate", type=int, default=2)
    p.add_argument("--device-seconds", type=float, default=0.06, help="time one step spends on the accelerator")
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    data = Atmosphere(args.cases, args.levels, args.frames, args.side)
    loader = DataLoader(data, shuffle=True, **LOADER)
    net = Nowcaster(args.frames, args.levels)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    smooth, started = Ema(), time.time()
    for step, batch in enumerate(loader, 1):
        loss = F.mse_loss(net(batch["volume"]), batch["rain"]) / args.accumulate
        loss.backward()
        if step % args.accumulate == 0:
            opt.step()
            opt.zero_grad()
        time.sleep(args.device_seconds)
        level = smooth(loss.item() * args.accumulate)
        if step % 20 == 0:
            print(f"{step}/{len(loader)} loss {level:.4f} ({time.time() - started:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
