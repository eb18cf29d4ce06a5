# cause: stop-iteration-truncates
"""Learn to score whether an audio window and a subtitle line belong together."""
import hashlib
import time
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

Cue = namedtuple("Cue", "start end text")
RATE = 4000
WORDS = "the a sea wind house old man night said never come back again light under river".split()


def screenplay(minutes, rng):
    cues, t = [], 0.0
    while t < minutes * 60:
        length = float(rng.uniform(1.2, 3.0))
        cues.append(Cue(t, t + length, " ".join(rng.choice(WORDS, 6))))
        t += length
        if 290 < t < 293:
            t += 4.2
    return cues


def soundtrack(cues, seconds, rng):
    wave = rng.normal(0, 0.05, seconds * RATE).astype(np.float32)
    for cue in cues:
        a, b = int(cue.start * RATE), min(int(cue.end * RATE), len(wave))
        pitch = 200 + sum(map(ord, cue.text)) % 900
        wave[a:b] += np.sin(2 * np.pi * pitch * np.arange(max(b - a, 0)) / RATE).astype(np.float32)
    return wave


def hashed_bag(text, dim=256):
    vec = np.zeros(dim, np.float32)
    for word in text.split():
        for n in (2, 3, 4):
            for i in range(len(word) - n + 1):
                h = int.from_bytes(hashlib.blake2b(word[i:i + n].encode(), digest_size=4).digest(), "big")
                vec[h % dim] += 1 if h & 1024 else -1
    return vec


class Pairs(Dataset):
    hop = 1.0

    def __init__(self, minutes=10, seed=5):
        rng = np.random.default_rng(seed)
        self.cues = screenplay(minutes, rng)
        self.wave = soundtrack(self.cues, minutes * 60, rng)
        self.count = int(minutes * 60 / self.hop) - 1

    def __len__(self):
        return self.count

    def line_at(self, t):
        return next(c for c in self.cues if c.start <= t < c.end)

    def spectrum(self, t):
        a = int(t * RATE)
        piece = self.wave[a:a + RATE // 2]
        frames = np.lib.stride_tricks.sliding_window_view(piece, 256)[::64]
        time.sleep(0.002)
        return np.log1p(np.abs(np.fft.rfft(frames * np.hanning(256), axis=1))).mean(0).astype(np.float32)

    def __getitem__(self, i):
        t = i * self.hop + 0.25
        match = bool(torch.rand(()) < 0.5)
        line = self.line_at(t) if match else self.cues[int(torch.randint(len(self.cues), ()))]
        return {"audio": torch.from_numpy(self.spectrum(t)), "text": torch.from_numpy(hashed_bag(line.text)),
                "match": torch.tensor(float(match))}


class TwoTower(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.audio = nn.Sequential(nn.Linear(129, 768), nn.ReLU(), nn.Linear(768, dim))
        self.text = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, dim))

    def forward(self, batch):
        return (self.audio(batch["audio"]) * self.text(batch["text"])).sum(1) / 8


class Trainer:
    def __init__(self, model, loader, epochs):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.opt = torch.optim.Adam(model.parameters(), 1e-3)
        self.best = float("inf")

    def epoch(self):
        total, n = 0.0, 0
        for batch in self.loader:
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(batch), batch["match"])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(batch["match"])
            n += len(batch["match"])
        return total / max(n, 1)

    def fit(self):
        for k in range(self.epochs):
            loss = self.epoch()
            self.best = min(self.best, loss)
            print(f"epoch {k:02d} loss {loss:.4f} best {self.best:.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(4)
    torch.set_num_threads(1)
    data = Pairs()
    loader = DataLoader(data, batch_size=15, num_workers=2, shuffle=True, persistent_workers=True)
    Trainer(TwoTower(), loader, epochs=3).fit()
