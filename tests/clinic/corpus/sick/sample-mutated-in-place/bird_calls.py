# cause: sample-mutated-in-place
"""Bird call recognition with time/frequency masking."""
import math
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, SPECIES = 4000, 2, 5


class StripeMask:
    def __init__(self, axis, widest, count=2):
        self.axis, self.widest, self.count = axis, widest, count

    def __call__(self, spec):
        for _ in range(self.count):
            width = random.randint(1, self.widest)
            start = random.randint(0, spec.shape[self.axis] - width)
            spec.narrow(self.axis, start, width).zero_()
        return spec


class Pipeline:
    def __init__(self, *ops):
        self.ops = ops

    def __call__(self, x):
        for op in self.ops:
            x = op(x)
        return x


def add_deltas(spec):
    feats = [spec]
    for _ in range(2):
        feats.append(torch.diff(feats[-1], dim=1, prepend=feats[-1][:, :1]))
    out = torch.stack(feats)
    for _ in range(4):
        out = nn.functional.avg_pool2d(out[None], 3, 1, 1)[0] * 0.5 + out * 0.5
    return out


class CallDataset(Dataset):
    def __init__(self, n, transform=None):
        self.transform = transform
        self.labels = [i % SPECIES for i in range(n)]
        self.spectra = [self._spectrum(i, lab) for i, lab in enumerate(self.labels)]

    @staticmethod
    def _spectrum(i, label):
        rs = np.random.RandomState(i)
        t = np.arange(RATE * SECONDS) / RATE
        chirp = np.sin(2 * math.pi * (300 + 200 * label) * t * (1 + 0.2 * np.sin(3 * t))) + rs.normal(0, .3, len(t))
        frames = np.lib.stride_tricks.sliding_window_view(chirp, 256)[::64] * np.hanning(256)
        return np.log1p(np.abs(np.fft.rfft(frames, axis=1)).T).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        spec = torch.from_numpy(self.spectra[i])
        if self.transform:
            spec = self.transform(spec)
        return spec, self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.fc = nn.Linear(128, SPECIES)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


def evaluate(model, loader):
    model.eval()
    good = total = 0
    with torch.no_grad():
        for x, y in loader:
            good += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return good / total


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = CallDataset(112, Pipeline(StripeMask(0, 20), StripeMask(1, 20), add_deltas))
    val = CallDataset(20, add_deltas)
    train_loader = DataLoader(train, 16, shuffle=True, num_workers=2, persistent_workers=True)
    val_loader = DataLoader(val, 20)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(4):
        model.train()
        empty = 0.0
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            empty += (x[:, 0] == 0).float().mean().item() / len(train_loader)
        print(f"epoch {epoch} loss {loss.item():.3f} val {evaluate(model, val_loader):.2f} blank {empty:.2f}", flush=True)


if __name__ == "__main__":
    main()
