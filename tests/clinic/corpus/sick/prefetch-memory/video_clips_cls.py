# cause: prefetch-memory
# also: too-many-workers
"""Action recognition on short clips of a synthetic camera."""
import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class CameraClips(Dataset):
    def __init__(self, n, frames, side):
        self.n, self.frames, self.side = n, frames, side
        g = torch.linspace(-1, 1, side)
        self.yy, self.xx = torch.meshgrid(g, g, indexing="ij")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.004)
        kind = i % 4
        out = torch.empty(self.frames, 3, self.side, self.side)
        base = 0.6 * torch.sin(4 * self.xx * (kind + 1)) * torch.cos(3 * self.yy)
        for f in range(self.frames):
            out[f] = base * math.cos(f * 0.3 + i)
        return {"clip": out, "label": kind}


class ClipNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.pool = nn.AvgPool3d((1, 8, 8))
        self.fc = nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, clip):
        return self.fc(self.pool(clip.transpose(1, 2)).flatten(1))


class EMA:
    def __init__(self, model, decay=0.99):
        self.decay, self.shadow = decay, {k: v.clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].lerp_(v, 1 - self.decay)


def loader_options(args):
    opts = dict(batch_size=args.batch, num_workers=args.workers, shuffle=True, drop_last=True)
    if args.workers:
        opts["prefetch_factor"] = args.ahead
    return opts


def train(args):
    torch.set_num_threads(1)
    data = CameraClips(args.clips, args.frames, args.side)
    loader = DataLoader(data, **loader_options(args))
    model = ClipNet()
    model(torch.zeros(1, args.frames, 3, args.side, args.side))
    ema = EMA(model)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step, batch in enumerate(loader):
        loss = nn.functional.cross_entropy(model(batch["clip"]), batch["label"])
        (loss / args.accumulate).backward()
        if (step + 1) % args.accumulate == 0:
            opt.step()
            opt.zero_grad()
            ema.update(model)
        time.sleep(args.device_ms / 1000)          # the accelerator is busy with the big tower
        if step % 20 == 0:
            print("step %3d loss %.3f" % (step, loss.item()), flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=400)
    ap.add_argument("--frames", type=int, default=16)
    ap.add_argument("--side", type=int, default=128)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--ahead", type=int, default=20)
    ap.add_argument("--accumulate", type=int, default=2)
    ap.add_argument("--device-ms", type=float, default=50)
    train(ap.parse_args())
