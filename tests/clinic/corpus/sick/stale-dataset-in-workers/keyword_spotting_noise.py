# cause: stale-dataset-in-workers
"""Keyword spotting with a noise curriculum: clean speech first, then lower and lower signal-to-noise ratios."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Recipe:
    words: int = 8
    clips: int = 960
    test_clips: int = 160
    batch: int = 32
    epochs: int = 5
    workers: int = 2
    lr: float = 2e-3
    snr_start: float = 30.0
    snr_end: float = 0.0
    snr_db: float = 30.0

    def advance(self, epoch):
        share = epoch / max(1, self.epochs - 1)
        self.snr_db = self.snr_start + share * (self.snr_end - self.snr_start)


class BabbleNoise:
    def __init__(self, recipe):
        self.recipe = recipe

    def __call__(self, wave):
        noise = np.random.standard_normal(len(wave)).astype(np.float32)
        noise = np.convolve(noise, np.ones(9, np.float32) / 9, mode="same")
        ratio = 10 ** (self.recipe.snr_db / 20)
        scale = np.sqrt((wave ** 2).mean()) / (np.sqrt((noise ** 2).mean()) * ratio + 1e-9)
        return wave + scale * noise


class RandomShift:
    def __init__(self, samples):
        self.samples = samples

    def __call__(self, wave):
        return np.roll(wave, np.random.randint(-self.samples, self.samples + 1))


class Keywords(Dataset):
    """Formant-like synthetic words, made from parameters; log-band energies come out."""

    def __init__(self, recipe, size, seed, transforms=()):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, recipe.words, size)
        self.voice = rng.uniform(0.9, 1.1, size).astype(np.float32)
        self.transforms = transforms
        self.t = np.arange(8000, dtype=np.float32) / 8000
        self.window = np.hanning(256).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def speak(self, index):
        f1 = 300 + 90 * self.labels[index]
        f2 = 2400 - 150 * self.labels[index]
        glide = 1 + 0.1 * np.sin(2 * np.pi * 3 * self.t)
        wave = np.sin(2 * np.pi * f1 * self.voice[index] * self.t * glide) + 0.5 * np.sin(2 * np.pi * f2 * self.t)
        return (wave * np.hanning(len(wave))).astype(np.float32)

    def __getitem__(self, index):
        wave = self.speak(index)
        for transform in self.transforms:
            wave = transform(wave)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::128] * self.window
        power = np.abs(np.fft.rfft(frames, axis=1))[:, :128] ** 2
        bands = power.reshape(len(power), 32, 4).sum(2)
        return torch.from_numpy(np.log(bands + 1e-4).astype(np.float32)[None]), int(self.labels[index])


class WordNet(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, words))

    def forward(self, x):
        return self.net(x)


class Experiment:
    def __init__(self, recipe):
        self.recipe = recipe
        augment = (RandomShift(400), BabbleNoise(recipe))
        options = dict(batch_size=recipe.batch, num_workers=recipe.workers, persistent_workers=True)
        self.train = DataLoader(Keywords(recipe, recipe.clips, 1, augment), shuffle=True, **options)
        self.test = DataLoader(Keywords(recipe, recipe.test_clips, 2), **options)
        self.model = WordNet(recipe.words)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=recipe.lr)

    def one_epoch(self):
        total = 0.0
        for features, words in self.train:
            loss = nn.functional.cross_entropy(self.model(features), words)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train)

    def score(self):
        with torch.no_grad():
            return sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.test) / len(self.test.dataset)

    def run(self):
        for epoch in range(self.recipe.epochs):
            self.recipe.advance(epoch)
            start = time.perf_counter()
            loss = self.one_epoch()
            seconds = time.perf_counter() - start
            print(f"epoch {epoch} at {self.recipe.snr_db:4.1f} dB: loss {loss:.3f} test {self.score():.2f} ({seconds:.1f} s)", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Experiment(Recipe()).run()
