# cause: shm-exhausted
# limits: shm=96M
"""SimCLR-like pretraining with a bank of earlier views used as extra negatives."""
import argparse
import collections
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def synth(index: int, side: int) -> np.ndarray:
    g = np.random.default_rng(index)
    ramp = np.linspace(0, 6, side, dtype=np.float32)
    f = g.uniform(1, 9, size=(2, 3, 1)).astype(np.float32)
    return np.sin(f[0] * ramp)[:, None, :] * np.cos(f[1] * ramp)[:, :, None]


class TwoViews(Dataset):
    def __init__(self, n: int, side: int = 160):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def _augment(self, x: torch.Tensor) -> torch.Tensor:
        dx, dy = torch.randint(0, self.side, (2,)).tolist()
        x = torch.roll(x, (dx, dy), (1, 2))
        if torch.rand(()) < 0.5:
            x = x.flip(2)
        return x * (0.6 + 0.8 * torch.rand(3, 1, 1)) + 0.05 * torch.randn_like(x)

    def __getitem__(self, i):
        x = torch.from_numpy(synth(i, self.side))
        return self._augment(x), self._augment(x)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class ViewBank:
    """Recent views; re-encoded with the current weights whenever negatives are drawn."""

    def __init__(self, depth: int):
        self.views = collections.deque(maxlen=depth)

    def push(self, batch):
        self.views.append(batch)

    @torch.no_grad()
    def negatives(self, encoder, k=2):
        if not self.views:
            return None
        picks = np.random.choice(len(self.views), size=min(k, len(self.views)), replace=False)
        return torch.cat([encoder(self.views[j]) for j in picks])


def nt_xent(a, b, neg, tau=0.2):
    logits = a @ b.t() / tau
    if neg is not None:
        logits = torch.cat([logits, a @ neg.t() / tau], dim=1)
    return F.cross_entropy(logits, torch.arange(len(a)))


def main(opt):
    torch.manual_seed(opt.seed)
    torch.set_num_threads(1)
    loader = DataLoader(TwoViews(opt.size), batch_size=opt.batch, shuffle=True, num_workers=2,
                        drop_last=True, persistent_workers=True)
    enc, bank = Encoder(), ViewBank(opt.bank)
    optim = torch.optim.Adam(enc.parameters(), lr=1e-3)
    started = time.time()
    for epoch in range(opt.epochs):
        total = 0.0
        for one, two in loader:
            a, b = enc(one), enc(two)
            loss = nt_xent(a, b, bank.negatives(enc))
            optim.zero_grad()
            loss.backward()
            optim.step()
            bank.push(two)
            total += loss.item()
        print("epoch %d  loss %.3f  %.1fs" % (epoch, total / len(loader), time.time() - started), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=960)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--bank", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
