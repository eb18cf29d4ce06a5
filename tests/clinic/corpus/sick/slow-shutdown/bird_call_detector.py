# cause: slow-shutdown
"""Detects bird calls in phone clips and in recordings of unattended night recorders."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

RATE = 8192
WINDOW = 1024
BANDS = 24


@dataclass
class Options:
    train_clips: int = 360
    phone_clips: int = 8
    night_recordings: int = 12
    night_minutes: float = 180.0
    batch_size: int = 12
    workers: int = 2
    epochs: int = 3
    quick_val_batches: int = 4
    lr: float = 2e-3


def chirp(rng, length):
    t = np.arange(length) / RATE
    start, sweep = rng.uniform(900, 1600), rng.uniform(400, 900)
    return np.sin(2 * np.pi * (start * t + 0.5 * sweep * t * t)).astype(np.float32)


class Recording:
    """Audio of any length, made block by block so that nights do not have to fit into memory."""

    def __init__(self, key, seconds, calls):
        self.key, self.seconds, self.calls = key, seconds, calls

    def blocks(self, size=8 * WINDOW):
        rng = np.random.default_rng(self.key)
        for _ in range(max(1, int(self.seconds * RATE / size))):
            noise = 0.4 * rng.standard_normal(size, dtype=np.float32)
            if self.calls and rng.random() < 0.7:
                noise += chirp(rng, size)
            yield noise


def band_energies(block):
    frames = block.reshape(-1, WINDOW) * np.hanning(WINDOW).astype(np.float32)
    power = np.abs(np.fft.rfft(frames, axis=1))[:, : 20 * BANDS] ** 2
    return np.log1p(power.reshape(len(frames), BANDS, -1).mean(2)).astype(np.float32)


class CallDataset(Dataset):
    """One summary spectrogram (mean, maximum and spread of every band) per recording."""

    def __init__(self, count, seconds, first_key):
        self.count, self.seconds, self.first_key = count, seconds, first_key

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        label = index % 2
        recording = Recording(self.first_key + index, self.seconds, bool(label))
        total, square, peak, frames = 0.0, 0.0, 0.0, 0
        for block in recording.blocks():
            energies = band_energies(block)
            total = total + energies.sum(0)
            square = square + (energies ** 2).sum(0)
            peak = np.maximum(peak, energies.max(0))
            frames += len(energies)
        mean = total / frames
        spread = np.sqrt(np.maximum(square / frames - mean ** 2, 0))
        return torch.from_numpy(np.stack([mean, peak, spread]).astype(np.float32)), label


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 5, padding=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(32 * BANDS, 2)

    def forward(self, x):
        return self.head(self.body(x))


class Runner:
    def __init__(self, options):
        self.options = options
        self.model = Detector()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr)
        self.loss = nn.CrossEntropyLoss()
        train = CallDataset(options.train_clips, seconds=12.0, first_key=0)
        phone = CallDataset(options.phone_clips, seconds=12.0, first_key=10_000)
        nights = CallDataset(options.night_recordings, seconds=60 * options.night_minutes, first_key=20_000)
        self.train_loader = DataLoader(train, options.batch_size, shuffle=True, num_workers=options.workers, persistent_workers=True)
        self.val_loader = DataLoader(ConcatDataset([phone, nights]), batch_size=2, num_workers=options.workers)

    def train_epoch(self):
        self.model.train()
        losses = []
        for x, y in self.train_loader:
            loss = self.loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    @torch.no_grad()
    def validate(self, limit=None):
        self.model.eval()
        hits = seen = 0
        for number, (x, y) in enumerate(self.val_loader, start=1):
            hits += (self.model(x).argmax(1) == y).sum().item()
            seen += len(y)
            if limit is not None and number >= limit:
                break
        return hits / seen

    def fit(self):
        history = []
        for epoch in range(self.options.epochs):
            begin = time.perf_counter()
            train_loss = self.train_epoch()
            trained = time.perf_counter()
            accuracy = self.validate(limit=self.options.quick_val_batches)
            done = time.perf_counter()
            history.append(accuracy)
            print(f"epoch {epoch} loss {train_loss:.3f} quick accuracy {accuracy:.3f}"
                  f" [train {trained - begin:.1f} s, validation {done - trained:.1f} s]", flush=True)
        return max(history)


if __name__ == "__main__":
    torch.manual_seed(0)
    print("best", Runner(Options()).fit())
