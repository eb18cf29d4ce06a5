# cause: sample-mutated-in-place
"""Birdsong species classifier; the whole clip bank fits in memory."""
import logging
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("birdsong")


@dataclass
class Config:
    clips: int = 720
    length: int = 12_000
    species: int = 6
    batch: int = 24
    workers: int = 2
    epochs: int = 6


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, x):
        for s in self.steps:
            x = s(x)
        return x


class Gain:
    """Random recording level."""

    def __init__(self, low=1.05, high=1.6):
        self.low, self.high = low, high

    def __call__(self, x):
        x *= torch.empty(1).uniform_(self.low, self.high)
        return x


class Hiss:
    def __init__(self, level=0.02):
        self.level = level

    def __call__(self, x):
        return x + self.level * torch.randn_like(x)


class TimeShift:
    def __call__(self, x):
        return torch.roll(x, int(torch.randint(0, x.numel(), (1,))))


class LogSpectrum:
    def __init__(self, n=512, hop=128):
        self.n, self.hop, self.win = n, hop, torch.hann_window(n)

    def __call__(self, x):
        return torch.stft(x, self.n, self.hop, window=self.win, return_complex=True).abs()[:128].log1p()


class ClipBank(Dataset):
    def __init__(self, cfg, transform):
        rng = np.random.default_rng(5)
        self.y = rng.integers(0, cfg.species, cfg.clips)
        t = np.arange(cfg.length) / 8000
        base = np.stack([np.sin(2 * np.pi * (900 + 350 * s) * t * (1 + 0.1 * np.sin(9 * t))) for s in range(cfg.species)])
        self.bank = torch.from_numpy((0.1 * base[self.y]).astype(np.float32))
        self.bank += 0.02 * torch.randn(self.bank.shape)
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.transform(self.bank[i]), int(self.y[i])


class Net(nn.Module):
    def __init__(self, species):
        super().__init__()
        self.c1 = nn.Conv1d(128, 256, 5, padding=2)
        self.c2 = nn.Conv1d(256, 256, 5, padding=2)
        self.out = nn.Linear(256, species)

    def forward(self, x):
        return self.out(F.relu(self.c2(F.relu(self.c1(x)))).mean(-1))


def build(cfg):
    clean = Compose(LogSpectrum())
    noisy = Compose(Gain(), TimeShift(), Hiss(), LogSpectrum())
    cut = cfg.clips * 5 // 6
    pick = np.random.default_rng(0).permutation(cfg.clips)
    make = lambda tf, idx, sh: DataLoader(Subset(ClipBank(cfg, tf), idx.tolist()), cfg.batch, shuffle=sh,
                                          num_workers=cfg.workers, persistent_workers=True)
    return make(noisy, pick[:cut], True), make(clean, pick[cut:], False)


def main():
    cfg = Config()
    torch.manual_seed(7)
    train, val = build(cfg)
    torch.set_num_threads(1)
    model = Net(cfg.species)
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    for epoch in range(cfg.epochs):
        tot, level = 0.0, 0.0
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
            level += x.mean().item()
        with torch.no_grad():
            acc = torch.cat([(model(x).argmax(1) == y).float() for x, y in val]).mean()
        log.info("epoch %d loss %.4f input level %.4f val %.3f", epoch, tot / len(train), level / len(train), acc)


if __name__ == "__main__":
    main()
