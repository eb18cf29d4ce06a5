# cause: thread-oversubscription
"""Spots whale calls in hydrophone recordings: waveform -> PCEN-like spectrogram -> small convolutional net."""
import logging
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("spotter")


@dataclass
class Settings:
    clips: int = 480
    held_out: int = 96
    seconds: float = 3.0
    rate: int = 16000
    fft: int = 512
    hop: int = 128
    bands: int = 40
    batch: int = 16
    epochs: int = 3
    workers: int = 2
    dsp_threads: int = 8
    lr: float = 2e-3


class SignalBackend:
    """Window, filter bank and runtime settings, prepared once in the process that needs them."""

    def __init__(self, settings):
        self.settings = settings
        self.owner = None

    def ready(self):
        if self.owner != os.getpid():
            torch.set_num_threads(max(self.settings.dsp_threads, torch.get_num_threads()))
            self.window = torch.hann_window(self.settings.fft)
            self.bank = self._bank()
            self.owner = os.getpid()
        return self

    def _bank(self):
        bins = self.settings.fft // 2 + 1
        centres = torch.logspace(np.log10(3), np.log10(bins - 2), self.settings.bands)
        grid = torch.arange(bins, dtype=torch.float32)
        return torch.exp(-0.5 * ((grid[:, None] - centres) / (0.12 * centres + 1)) ** 2)

    def spectrogram(self, wave):
        frames = wave.unfold(0, self.settings.fft, self.settings.hop) * self.window
        return torch.fft.rfft(frames).abs().square() @ self.bank


class SeaNoise:
    """Multipath echoes and a rising noise floor."""

    def __init__(self, echoes=12):
        self.echoes = echoes

    def __call__(self, wave):
        out = wave.clone()
        for delay in torch.randint(40, 1800, (self.echoes,)).tolist():
            out += 0.3 * torch.rand(()) * torch.roll(wave, delay)
        return out + 0.02 * torch.randn_like(out)


class CallClips(Dataset):
    def __init__(self, settings, size, seed, augment=None):
        self.settings, self.augment = settings, augment
        self.backend = SignalBackend(settings)
        rng = np.random.default_rng(seed)
        self.labels = torch.from_numpy(rng.integers(0, 3, size))
        self.pitch = torch.from_numpy(rng.uniform(120, 900, size)).float()
        self.time = torch.arange(int(settings.seconds * settings.rate)) / settings.rate

    def __len__(self):
        return len(self.labels)

    def synthesise(self, index):
        sweep = (self.labels[index] - 1) * 140.0
        phase = 2 * torch.pi * (self.pitch[index] * self.time + 0.5 * sweep * self.time.square())
        envelope = torch.exp(-((self.time - 1.5) / 0.7).square())
        return torch.sin(phase) * envelope

    def __getitem__(self, index):
        backend = self.backend.ready()
        wave = self.synthesise(index)
        if self.augment is not None:
            wave = self.augment(wave)
        energy = backend.spectrogram(wave)
        smooth = torch.nn.functional.avg_pool1d(energy.t()[None], 9, 1, 4)[0]
        return torch.sqrt(energy.t() / (smooth + 1e-3) + 2) - 2 ** 0.5, self.labels[index]


class Spotter(nn.Module):
    def __init__(self, bands, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(bands, 24, 5, stride=3), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 24, 5, stride=3), nn.ReLU())
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


def loaders(s):
    common = dict(batch_size=s.batch, num_workers=s.workers, persistent_workers=s.workers > 0)
    return (DataLoader(CallClips(s, s.clips, 1, SeaNoise()), shuffle=True, **common),
            DataLoader(CallClips(s, s.held_out, 2), **common))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(4)
    torch.set_num_threads(1)  # the model is tiny
    s = Settings()
    train, held_out = loaders(s)
    model = Spotter(s.bands)
    optimiser = torch.optim.Adam(model.parameters(), lr=s.lr)
    for epoch in range(s.epochs):
        start = time.time()
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        seconds = time.time() - start
        log.info("epoch %d loss %.3f, %.0f clips/s, held out %.3f", epoch, loss.item(), s.clips / seconds, accuracy(model, held_out))


if __name__ == "__main__":
    main()
