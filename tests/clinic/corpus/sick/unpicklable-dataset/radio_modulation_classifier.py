# cause: unpicklable-dataset
"""Recognises the modulation of short radio bursts from their constellation and spectrum."""
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("bpsk", "qpsk", "psk8", "qam16")
STAGES = {}


def stage(name):
    """Registers a maker of processing stages, to be named in the configuration."""

    def register(maker):
        STAGES[name] = maker
        return maker

    return register


@stage("fading")
def fading(depth):
    def apply(burst):
        n = np.arange(len(burst)) / len(burst)
        return burst * (1 - depth * np.random.rand() * np.sin(np.pi * n))

    return apply


@stage("offset")
def frequency_offset(limit):
    def apply(burst):
        turn = np.random.uniform(-limit, limit) * np.arange(len(burst))
        return burst * np.exp(1j * turn)

    return apply


@stage("noise")
def noise(sigma):
    def apply(burst):
        return burst + sigma * (np.random.randn(len(burst)) + 1j * np.random.randn(len(burst)))

    return apply


@dataclass
class Config:
    bursts: int = 900
    length: int = 2048
    batch: int = 25
    workers: int = 2
    epochs: int = 3
    context: str = "forkserver"
    chain: list = field(default_factory=lambda: [["fading", 0.4], ["offset", 0.002], ["noise", 0.15]])


class Chain:
    def __init__(self, description):
        self.description = description
        self.stages = [STAGES[name](value) for name, value in description]

    def __call__(self, burst):
        for apply in self.stages:
            burst = apply(burst)
        return burst

    def __repr__(self):
        return " -> ".join(f"{name}({value})" for name, value in self.description)


class Bursts(Dataset):
    def __init__(self, indices, config, chain=None):
        self.indices, self.length, self.chain = np.asarray(indices), config.length, chain

    def __len__(self):
        return len(self.indices)

    def burst(self, number):
        rng = np.random.default_rng(number)
        kind = number % len(KINDS)
        if KINDS[kind] == "qam16":
            symbols = (rng.integers(0, 4, self.length // 8) * 2 - 3 + 1j * (rng.integers(0, 4, self.length // 8) * 2 - 3)) / 3
        else:
            order = (2, 4, 8)[kind]
            symbols = np.exp(2j * np.pi * rng.integers(0, order, self.length // 8) / order)
        return np.convolve(np.repeat(symbols, 8), np.hanning(9) / 4, mode="same"), kind

    def __getitem__(self, index):
        burst, kind = self.burst(int(self.indices[index]))
        if self.chain is not None:
            burst = self.chain(burst)
        picture = np.histogram2d(burst.real, burst.imag, bins=24, range=[[-2, 2], [-2, 2]])[0]
        powers = [np.log1p(np.abs(np.fft.fft(burst ** p)))[:576].reshape(24, 24) for p in (1, 2, 4)]
        return torch.from_numpy(np.stack([np.log1p(picture), *powers]).astype(np.float32)), kind


def build(config):
    numbers = np.random.default_rng(5).permutation(config.bursts)
    cut = int(0.85 * len(numbers))
    options = dict(batch_size=config.batch, num_workers=config.workers, persistent_workers=True, multiprocessing_context=config.context)
    return (DataLoader(Bursts(numbers[:cut], config, Chain(config.chain)), shuffle=True, **options),
            DataLoader(Bursts(numbers[cut:], config), **options))


def main(config, folder):
    torch.manual_seed(0)
    train_loader, val_loader = build(config)
    print("augmentation:", train_loader.dataset.chain, flush=True)
    model = nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(len(KINDS)))
    model(torch.zeros(1, 4, 24, 24))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    history = []
    for epoch in range(config.epochs):
        start = time.perf_counter()
        for picture, kind in train_loader:
            loss = nn.functional.cross_entropy(model(picture), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            hits = torch.cat([model(picture).argmax(1) == kind for picture, kind in val_loader]).float().mean().item()
        history.append({"epoch": epoch, "loss": loss.item(), "accuracy": hits})
        (Path(folder) / "history.json").write_text(json.dumps(history))
        print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {hits:.3f} in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Config(), folder)
