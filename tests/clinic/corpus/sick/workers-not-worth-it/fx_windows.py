# cause: workers-not-worth-it
"""Direction forecast on minute bars of a few currency pairs, sliding windows over one array."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def synth_bars(pairs=6, minutes=6000, seed=11):
    rng = np.random.default_rng(seed)
    drift = np.sin(np.arange(minutes) / 90.0)[None] * 2e-4
    close = np.exp(np.cumsum(drift + rng.normal(scale=4e-4, size=(pairs, minutes)), 1))
    spread = np.abs(rng.normal(scale=2e-4, size=(pairs, minutes, 2)))
    bars = np.stack([close, close * (1 + spread[..., 0]), close * (1 - spread[..., 1])], -1)
    return np.log(bars / bars[:, :1, :1]).astype(np.float32)


class BarWindows(Dataset):
    def __init__(self, bars, start, stop, length=48, horizon=6, stride=2):
        self.bars, self.length, self.horizon = bars, length, horizon
        self.index = [(p, t) for p in range(bars.shape[0]) for t in range(start, stop - length - horizon, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        p, t = self.index[k]
        w = self.bars[p, t: t + self.length]
        up = self.bars[p, t + self.length + self.horizon - 1, 0] > w[-1, 0]
        return torch.from_numpy(w - w[-1, 0]), torch.tensor(float(up))


class TCN(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.a = nn.Conv1d(3, channels, 3, dilation=1)
        self.b = nn.Conv1d(channels, channels, 3, dilation=4)
        self.out = nn.Linear(channels, 1)

    def forward(self, x):
        h = torch.relu(self.a(x.transpose(1, 2)))
        h = torch.relu(self.b(h))
        return self.out(h.mean(2)).squeeze(1)


def evaluate(model, loader):
    model.eval()
    good = total = 0
    with torch.inference_mode():
        for x, y in loader:
            good += ((model(x) > 0) == (y > 0.5)).sum().item()
            total += len(y)
    return good / total


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    opt = ap.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    bars = synth_bars()
    kw = dict(num_workers=opt.workers, persistent_workers=opt.workers > 0)
    train = DataLoader(BarWindows(bars, 0, 5000), opt.batch_size, shuffle=True, drop_last=True, **kw)
    valid = DataLoader(BarWindows(bars, 5000, 6000), opt.batch_size, **kw)
    model = TCN()
    optim = torch.optim.RMSprop(model.parameters(), 1e-3)
    for epoch in range(opt.epochs):
        model.train()
        t = time.perf_counter()
        for x, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optim.zero_grad(set_to_none=True)
            loss.backward()
            optim.step()
        print(f"epoch {epoch} {len(train)} steps {time.perf_counter() - t:.2f}s  hit rate {evaluate(model, valid):.3f}")


if __name__ == "__main__":
    main()
