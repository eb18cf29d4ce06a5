# cause: rng-repeated
"""Keyword spotting: log-mel features with time and frequency masking, GRU head."""
from dataclasses import dataclass
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    words: int = 8
    clips: int = 1400
    rate: int = 16000
    mels: int = 40
    hop: int = 160
    batch: int = 28
    epochs: int = 2
    workers: int = 2
    seed: int = 1234


class Clips(Dataset):
    """Each clip is a chirp of its word plus room noise, synthesised from stored parameters."""

    def __init__(self, cfg):
        self.cfg = cfg
        g = np.random.default_rng(cfg.seed)
        self.word = g.integers(0, cfg.words, cfg.clips)
        self.pitch = g.uniform(0.9, 1.1, cfg.clips).astype(np.float32)
        self.onset = g.integers(0, cfg.rate // 4, cfg.clips)
        self.room = g.normal(0, 0.05, cfg.rate * 4).astype(np.float32)
        self.bank = self._bank()

    def _bank(self):
        n = 513
        centres = np.linspace(2, 110, self.cfg.mels) ** 1.3
        f = np.arange(n)[None]
        return torch.from_numpy(np.exp(-0.5 * ((f - centres[:, None]) / (3 + centres[:, None] / 12)) ** 2).astype(np.float32))

    def __len__(self):
        return len(self.word)

    def wave(self, i):
        t = np.arange(self.cfg.rate, dtype=np.float32) / self.cfg.rate
        base = (220 + 140 * self.word[i]) * self.pitch[i]
        x = np.zeros_like(t)
        for k in range(1, 9):
            x += np.sin(2 * math.pi * k * base * (t + 0.15 * t * t)) / k
        x *= np.exp(-3 * t)
        x = np.roll(x, self.onset[i])
        start = (i * 977) % (len(self.room) - len(x))
        return torch.from_numpy(x + self.room[start:start + len(x)])

    def __getitem__(self, i):
        spec = torch.stft(self.wave(i), 1024, self.cfg.hop, window=torch.hann_window(1024), return_complex=True).abs() ** 2
        return torch.log1p(self.bank @ spec), int(self.word[i])


class Masking:
    """SpecAugment-like masking, mixed into a batch maker."""

    bands, frames = 8, 20

    def init_masking(self, seed):
        self._draw = torch.Generator().manual_seed(seed)

    def randint(self, high):
        return int(torch.randint(0, high, (), generator=self._draw))

    def mask(self, spec):
        spec = spec.clone()
        m, t = spec.shape
        f0, w = self.randint(m - self.bands), self.randint(self.bands)
        spec[f0:f0 + w] = 0
        t0, w = self.randint(t - self.frames), self.randint(self.frames)
        spec[:, t0:t0 + w] = 0
        return spec


class BatchMaker:
    def __call__(self, items):
        specs, words = zip(*items)
        return torch.stack([self.prepare(s) for s in specs]), torch.tensor(words)

    def prepare(self, spec):
        return (spec - spec.mean()) / (spec.std() + 1e-5)


class MaskedBatchMaker(Masking, BatchMaker):
    def __init__(self, cfg):
        self.init_masking(cfg.seed)

    def prepare(self, spec):
        return self.mask(super().prepare(spec))


class Spotter(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Conv1d(cfg.mels, 32, 5, stride=4)
        self.gru = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, cfg.words)

    def forward(self, x):
        h, _ = self.gru(torch.relu(self.conv(x)).transpose(1, 2))
        return self.out(h[:, -1])


def build_loaders(cfg):
    clips = Clips(cfg)
    order = torch.randperm(len(clips), generator=torch.Generator().manual_seed(0)).tolist()
    train, val = Subset(clips, order[200:]), Subset(clips, order[:200])
    return (DataLoader(train, cfg.batch, shuffle=True, num_workers=cfg.workers, collate_fn=MaskedBatchMaker(cfg), drop_last=True),
            DataLoader(val, 50, num_workers=cfg.workers, collate_fn=BatchMaker(), persistent_workers=True))


def run(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    train, val = build_loaders(cfg)
    model = Spotter(cfg)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(cfg.epochs):
        model.train()
        for step, (x, y) in enumerate(train):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}/{len(train)} loss {loss.item():.3f}", flush=True)
        model.eval()
        with torch.no_grad():
            acc = torch.cat([(model(x).argmax(1) == y).float() for x, y in val]).mean()
        print(f"epoch {epoch} accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    run(Config())
