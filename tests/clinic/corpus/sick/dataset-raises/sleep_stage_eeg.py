# cause: dataset-raises
"""Sleep staging from single-channel EEG: overnight recordings of two cohorts, random and centred crops, 1-D ResNet."""
import dataclasses
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset

STAGES = ("W", "N1", "N2", "N3", "R")


@dataclasses.dataclass
class Options:
    epochs: int = 4
    validate_every: int = 2
    crop: int = 1200
    batch: int = 16
    workers: int = 2
    lr: float = 1e-3


class Cohort(Dataset):
    """Epochs of one study. Amplifiers differ in rate; everything is resampled to 50 Hz."""

    def __init__(self, name, nights, rate, view, seed):
        rng = np.random.default_rng(seed)
        self.name, self.rate, self.view = name, rate, view
        per_night = 30
        self.stage = rng.integers(0, 5, nights * per_night)
        self.seconds = np.full(len(self.stage), 30.0)
        # the last epoch of a night ends when the recorder was switched off
        self.seconds[per_night - 1 :: per_night] = rng.uniform(24.5, 30.0, nights)
        if name == "clinic-b":
            self.seconds[per_night * 2 - 1] = 17.25
        self.seed = seed

    def __len__(self):
        return len(self.stage)

    def signal(self, i):
        rng = np.random.default_rng((self.seed, i))
        n = int(self.seconds[i] * self.rate)
        t = np.arange(n) / self.rate
        freq = (10.0, 6.0, 13.0, 1.5, 5.0)[self.stage[i]]
        wave = np.sin(2 * np.pi * freq * t + rng.uniform(0, 6)) * (1 + (self.stage[i] == 3)) + rng.normal(0, 1.0, n)
        target = np.arange(int(self.seconds[i] * 50)) / 50
        return np.interp(target, t, wave).astype(np.float32)

    def __getitem__(self, i):
        x = self.view(self.signal(i))
        spectrum = np.abs(np.fft.rfft(x * np.hanning(len(x))))[1:129]
        return torch.from_numpy((x - x.mean()) / x.std())[None], torch.from_numpy(np.log(spectrum + 1e-3).astype(np.float32)), int(self.stage[i])


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, x):
        start = int(torch.randint(0, len(x) - self.size + 1, ()))
        return x[start : start + self.size]


class FiveCrop:
    """Mean of five crops spread over the recording, for a steadier estimate at validation."""

    def __init__(self, size):
        self.size = size

    def __call__(self, x):
        starts = np.linspace(0, len(x) - self.size, 5).astype(int)
        return np.lib.stride_tricks.sliding_window_view(x, self.size)[starts].mean(0)


class StageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, 16, 15, stride=4)
        self.block = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 9, padding=4))
        self.pool = nn.AdaptiveAvgPool1d(8)
        self.head = nn.Sequential(nn.Linear(128 + 128, 64), nn.ReLU(), nn.Linear(64, len(STAGES)))

    def forward(self, x, spectrum):
        h = self.stem(x)
        h = self.pool(F.relu(h + self.block(h))).flatten(1)
        return self.head(torch.cat([h, spectrum], 1))


def build(options):
    train = ConcatDataset([Cohort("clinic-a", 14, 128, RandomCrop(options.crop), 1),
                           Cohort("home", 12, 100, RandomCrop(options.crop), 2)])
    valid = ConcatDataset([Cohort("clinic-a", 4, 128, FiveCrop(options.crop), 3),
                           Cohort("clinic-b", 4, 256, FiveCrop(options.crop), 4)])
    kw = dict(batch_size=options.batch, num_workers=options.workers, persistent_workers=True)
    return DataLoader(train, shuffle=True, drop_last=True, **kw), DataLoader(valid, **kw)


def validate(model, loader):
    model.eval()
    table = torch.zeros(5, 5, dtype=torch.long)
    with torch.no_grad():
        for x, spectrum, y in loader:
            for a, b in zip(y, model(x, spectrum).argmax(1)):
                table[a, b] += 1
    model.train()
    return table.diag().sum().item() / table.sum().item()


def main(options=Options()):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, valid = build(options)
    model = StageNet()
    optimiser = torch.optim.Adam(model.parameters(), lr=options.lr)
    for epoch in range(1, options.epochs + 1):
        begin = time.time()
        total = 0.0
        for x, spectrum, y in train:
            loss = F.cross_entropy(model(x, spectrum), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        line = f"epoch {epoch} loss {total / len(train):.3f} {time.time() - begin:.1f} s"
        if epoch % options.validate_every == 0:
            line += f" accuracy {validate(model, valid):.3f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
