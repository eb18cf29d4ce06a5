"""Two-domain training of a harbour scene classifier; the smaller domain is cycled."""
import argparse
import io
import multiprocessing as mp
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def jpegs(n, seed, tint):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        img = Image.fromarray(rng.integers(0, 200, (12, 12, 3), dtype=np.uint8)).resize((96, 96))
        arr = np.clip(np.asarray(img, dtype=np.int16) + tint, 0, 255).astype(np.uint8)
        buf = io.BytesIO()
        Image.fromarray(arr).save(buf, "JPEG", quality=85)
        out.append(buf.getvalue())
    return out


class HarbourScenes(Dataset):
    def __init__(self, blobs, length, labelled, decoded):
        self.blobs, self.length, self.labelled = blobs, length, labelled
        self.decoded = decoded  # shared counter for the log line

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        k = i % len(self.blobs)
        img = Image.open(io.BytesIO(self.blobs[k])).convert("RGB").resize((64, 64))
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div(255)
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        with self.decoded.get_lock():
            self.decoded.value += 1
        return (x, k % 4) if self.labelled else x


class Cycle:
    """Endless view of a loader; starts over only when it is exhausted."""

    def __init__(self, loader):
        self.loader = loader
        self.it = None

    def batch(self):
        if self.it is None:
            self.it = iter(self.loader)
        try:
            return next(self.it)
        except StopIteration:
            self.it = iter(self.loader)
            return next(self.it)


class Net(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, c, 3, 1, 1), nn.ReLU(), nn.Conv2d(c, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.cls = nn.Linear(8 * c, 4)

    def forward(self, x):
        f = self.body(x)
        return f, self.cls(f)


def moment_gap(a, b):
    return (a.mean(0) - b.mean(0)).pow(2).mean() + (a.std(0) - b.std(0)).pow(2).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    decoded = mp.Value("l", 0)
    kw = dict(batch_size=args.batch, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True)
    source = DataLoader(HarbourScenes(jpegs(150, 0, 0), 640, True, decoded), **kw)
    target = Cycle(DataLoader(HarbourScenes(jpegs(150, 1, 30), 320, False, decoded), **kw))
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(args.epochs):
        tic = time.time()
        for step, (xs, ys) in enumerate(source):
            fs, logits = net(xs)
            ft, _ = net(target.batch())
            loss = nn.functional.cross_entropy(logits, ys) + 0.3 * moment_gap(fs, ft)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"[{epoch}:{step:03d}] loss {loss.item():.4f} decoded {decoded.value} {time.time() - tic:.1f}s", flush=True)


if __name__ == "__main__":
    main()
