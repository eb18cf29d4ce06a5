"""Leave-subjects-out evaluation of a gait classifier; folds share one pool of data workers."""
import functools
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


@functools.lru_cache(maxsize=None)
def wavelet_bank(length, scales):
    t = np.arange(length) - length / 2
    bank = []
    for k in range(scales):
        s = 2.0 + 1.5 * k
        w = np.exp(-0.5 * (t / s) ** 2) * np.cos(5 * t / s)
        bank.append(np.fft.rfft(np.fft.ifftshift(w / np.abs(w).sum())))
    return np.stack(bank)


class GaitWindows(Dataset):
    def __init__(self, subjects=12, per_subject=50, length=1024, seed=0):
        self.rng_seed, self.length = seed, length
        self.subject = np.repeat(np.arange(subjects), per_subject)
        self.label = np.random.default_rng(seed).integers(0, 3, len(self.subject))

    def __len__(self):
        return len(self.subject)

    def signal(self, i):
        rng = np.random.default_rng((self.rng_seed, i))
        t = np.arange(self.length) / 100
        f = 0.8 + 0.5 * self.label[i] + 0.05 * self.subject[i] / 12
        return np.stack([np.sin(2 * math.pi * f * k * t + rng.uniform(0, 6)) for k in (1, 2, 3)]) + rng.normal(scale=0.7, size=(3, t.size))

    def __getitem__(self, i):
        bank = wavelet_bank(self.length, 24)
        spec = np.fft.rfft(self.signal(i), axis=1)
        power = np.abs(np.fft.irfft(spec[:, None] * bank[None], n=self.length, axis=2))
        return torch.from_numpy(np.log1p(power[:, :, ::8]).astype(np.float32)), int(self.label[i])


class FoldSampler(Sampler):
    """Index source that can be pointed at another fold between passes."""

    def __init__(self):
        self.indices, self.shuffle = np.arange(0), False

    def point_at(self, indices, shuffle):
        self.indices, self.shuffle = indices, shuffle
        return self

    def __iter__(self):
        order = torch.randperm(len(self.indices)).tolist() if self.shuffle else range(len(self.indices))
        return iter(int(self.indices[k]) for k in order)

    def __len__(self):
        return len(self.indices)


def model_fn():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 3))


def cross_validate(data, folds=3, epochs=2):
    sampler = FoldSampler()
    loader = DataLoader(data, batch_size=25, sampler=sampler, num_workers=2, persistent_workers=True)
    for fold in range(folds):
        held = data.subject % folds == fold
        net = model_fn()
        opt = torch.optim.Adam(net.parameters(), 2e-3)
        sampler.point_at(np.flatnonzero(~held), True)
        for _ in range(epochs):
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
        sampler.point_at(np.flatnonzero(held), False)
        with torch.no_grad():
            acc = sum((net(x).argmax(1) == y).sum().item() for x, y in loader) / held.sum()
        print(f"fold {fold}: loss {loss.item():.3f} accuracy {acc:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cross_validate(GaitWindows())
