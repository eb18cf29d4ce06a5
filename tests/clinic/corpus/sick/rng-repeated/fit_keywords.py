# cause: rng-repeated
# also: workers-restarted
"""Keyword spotting on synthetic one-second utterances."""
import math
import os
import random
import struct
import tempfile
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000


@dataclass
class Config:
    keywords: int = 6
    per_keyword: int = 30
    batch: int = 20
    epochs: int = 3
    lr: float = 2e-3
    workers: int = 2
    seed: int = 5


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, wave):
        for step in self.steps:
            wave = step(wave)
        return wave


class Maybe:
    """Applies a step with the given chance."""

    def __init__(self, step, chance, source):
        self.step, self.chance, self.source = step, chance, source

    def __call__(self, wave):
        return self.step(wave) if self.source.random() < self.chance else wave


class Shift:
    def __init__(self, most, source):
        self.most, self.source = most, source

    def __call__(self, wave):
        return torch.roll(wave, self.source.randint(-self.most, self.most))


class Hum:
    def __init__(self, source):
        self.source = source

    def __call__(self, wave):
        freq = self.source.uniform(40, 400)
        level = self.source.uniform(0.01, 0.2)
        t = torch.arange(len(wave)) / RATE
        return wave + level * torch.sin(2 * math.pi * freq * t + self.source.random() * 6.28)


class Gain:
    def __init__(self, source):
        self.source = source

    def __call__(self, wave):
        return wave * 10 ** (self.source.uniform(-6, 6) / 20)


class LogSpectrogram:
    def __init__(self, n_fft=256, hop=64):
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)

    def __call__(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log1p(spec.abs().pow(2)).unsqueeze(0)


def training_pipeline(seed):
    source = random.Random(seed)
    noise = Compose(Maybe(Hum(source), 0.8, source), Gain(source))
    return Compose(Shift(800, source), noise, LogSpectrogram())


class Utterances(Dataset):
    def __init__(self, folder, transform):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".raw"))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, item):
        with open(self.files[item], "rb") as f:
            label, n = struct.unpack("<ii", f.read(8))
            pcm = struct.unpack(f"<{n}h", f.read(2 * n))
        return self.transform(torch.tensor(pcm, dtype=torch.float32) / 32768.0), label


def synthesise(folder, cfg):
    r = random.Random(1)
    for k in range(cfg.keywords):
        for j in range(cfg.per_keyword):
            f0 = 200 + 150 * k + r.uniform(-20, 20)
            t = torch.arange(RATE) / RATE
            wave = 0.4 * torch.sin(2 * math.pi * f0 * t * (1 + 0.1 * t)) + 0.05 * torch.randn(RATE)
            pcm = (wave.clamp(-1, 1) * 32767).short().tolist()
            with open(os.path.join(folder, f"{k:02d}_{j:04d}.raw"), "wb") as f:
                f.write(struct.pack("<ii", k, len(pcm)) + struct.pack(f"<{len(pcm)}h", *pcm))


def build_model(classes):
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                         nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


def run(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        synthesise(folder, cfg)
        data = Utterances(folder, training_pipeline(cfg.seed))
        loader = DataLoader(data, cfg.batch, shuffle=True, num_workers=cfg.workers)
        model = build_model(cfg.keywords)
        opt = torch.optim.Adam(model.parameters(), cfg.lr)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * len(loader))
        for epoch in range(cfg.epochs):
            running = 0.0
            for specs, labels in loader:
                opt.zero_grad()
                loss = nn.functional.cross_entropy(model(specs), labels)
                loss.backward()
                opt.step()
                sched.step()
                running += loss.item()
            print(f"[{epoch + 1}/{cfg.epochs}] loss {running / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    run(Config())
