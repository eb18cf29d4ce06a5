# cause: worker-out-of-memory
# limits: memory=1G
"""Rhythm triage of 12-lead ECGs from an archive of resting and ambulatory records."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, random_split

LEADS, RATE = 12, 250


@dataclass
class Settings:
    records: int = 720
    batch_size: int = 32
    workers: int = 2
    epochs: int = 3
    decimate: int = 8
    lr: float = 2e-3


class Archive:
    """Durations and rhythms of all records; the signal itself is made on request."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.seconds = rng.integers(8, 14, count)
        self.seconds[rng.integers(count // 3, count // 2)] = 1420
        self.rhythm = rng.integers(0, 3, count)
        self.rate = 60 + 35 * self.rhythm + rng.normal(0, 6, count)

    def signal(self, number):
        rng = np.random.default_rng(number)
        t = np.arange(self.seconds[number] * RATE, dtype=np.float32) / RATE
        phase = (t * np.float32(self.rate[number] / 60)) % 1
        beat = np.exp(-((phase - 0.3) / 0.02) ** 2) + 0.2 * np.exp(-((phase - 0.55) / 0.06) ** 2)
        gain = rng.uniform(0.3, 1.2, (1, LEADS)).astype(np.float32)
        noise = rng.standard_normal((len(t), LEADS), dtype=np.float32)
        return beat[:, None] * gain + 0.05 * noise


class RemoveBaseline:
    def __init__(self, window=RATE // 2):
        self.window = window

    def __call__(self, signal):
        sums = np.cumsum(signal, axis=0, dtype=np.float32)
        drift = (sums[self.window:] - sums[:-self.window]) / self.window
        return signal[self.window // 2:self.window // 2 + len(drift)] - drift


class EcgDataset(Dataset):
    def __init__(self, archive, transform):
        self.archive, self.transform = archive, transform

    def __len__(self):
        return len(self.archive.seconds)

    def __getitem__(self, index):
        signal = self.transform(self.archive.signal(index))
        return torch.from_numpy(signal), int(self.archive.rhythm[index])


def pad_batch(items):
    signals, rhythms = zip(*items)
    lengths = torch.tensor([len(s) for s in signals])
    return pad_sequence(signals, batch_first=True), lengths, torch.tensor(rhythms)


class RhythmNet(nn.Module):
    def __init__(self, decimate):
        super().__init__()
        self.decimate = decimate
        self.conv = nn.Sequential(nn.Conv1d(LEADS, 16, 9, stride=4), nn.ReLU(), nn.Conv1d(16, 24, 5, stride=2), nn.ReLU())
        self.out = nn.Linear(24, 3)

    def forward(self, signal, lengths):
        hidden = self.conv(signal[:, ::self.decimate].transpose(1, 2))
        valid = (lengths // (8 * self.decimate) - 2).clamp(min=1)
        mask = torch.arange(hidden.shape[2])[None] < valid[:, None]
        return self.out((hidden * mask[:, None]).sum(2) / valid[:, None])


def loaders(settings):
    dataset = EcgDataset(Archive(settings.records, seed=6), RemoveBaseline())
    held_out = settings.records // 6
    parts = random_split(dataset, [settings.records - held_out, held_out], generator=torch.Generator().manual_seed(2))
    return [
        DataLoader(part, settings.batch_size, shuffle=train, collate_fn=pad_batch, num_workers=settings.workers, persistent_workers=True)
        for part, train in zip(parts, (True, False))
    ]


def main():
    settings = Settings()
    torch.manual_seed(1)
    train_loader, val_loader = loaders(settings)
    model = RhythmNet(settings.decimate)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    for epoch in range(settings.epochs):
        start, losses = time.perf_counter(), []
        model.train()
        for step, (signal, lengths, rhythm) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(signal, lengths), rhythm)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 5 == 0:
                print(f"epoch {epoch} step {step}/{len(train_loader)} loss {losses[-1]:.4f}", flush=True)
        model.eval()
        right = seen = 0
        with torch.no_grad():
            for signal, lengths, rhythm in val_loader:
                right += (model(signal, lengths).argmax(1) == rhythm).sum().item()
                seen += len(rhythm)
        print(f"epoch {epoch} loss {np.mean(losses):.4f} accuracy {right / seen:.3f} in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
