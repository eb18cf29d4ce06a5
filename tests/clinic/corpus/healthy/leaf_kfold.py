"""5-fold cross validation of a leaf classifier."""
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass(frozen=True)
class Settings:
    folds: int = 5
    epochs: int = 2
    batch: int = 32
    workers: int = 1
    lr: float = 2e-3


class Leaves(Dataset):
    """Outlines of leaves, drawn from Fourier coefficients."""

    def __init__(self, n=600, classes=5, side=48, augment=False, seed=1):
        g = np.random.default_rng(seed)
        self.side, self.augment = side, augment
        self.labels = g.integers(0, classes, n)
        self.phase = g.uniform(0, 2 * np.pi, n)
        self.size = g.uniform(0.5, 0.9, n)
        y, x = np.mgrid[-1:1:side * 1j, -1:1:side * 1j]
        self.r, self.t = np.hypot(x, y), np.arctan2(y, x)

    def with_augment(self, on):
        twin = object.__new__(Leaves)
        twin.__dict__.update(self.__dict__, augment=on)
        return twin

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        phase = self.phase[i] + (np.random.uniform(-1, 1) if self.augment else 0)
        edge = self.size[i] * (1 + 0.3 * np.cos((self.labels[i] + 2) * (self.t + phase)))
        img = 1 / (1 + np.exp((self.r - edge) * 20))
        if self.augment:
            img = img + np.random.normal(0, 0.2, img.shape)
        return torch.from_numpy(img[None].astype(np.float32)), int(self.labels[i])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, 1, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(48, 64, 3, 1, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5))


def split(n, folds, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, folds)
    for k in range(folds):
        yield np.concatenate([p for j, p in enumerate(parts) if j != k]).tolist(), parts[k].tolist()


def run_fold(base, train_idx, test_idx, s):
    train = DataLoader(Subset(base.with_augment(True), train_idx), s.batch, shuffle=True,
                       num_workers=s.workers, persistent_workers=True)
    test = DataLoader(Subset(base, test_idx), 60)
    model = make_model()
    opt = torch.optim.Adam(model.parameters(), s.lr)
    wait = 0.0
    for _ in range(s.epochs):
        t = time.time()
        for x, y in train:
            wait += time.time() - t
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            t = time.time()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
    return right / len(test_idx), wait


def main():
    torch.set_num_threads(1)
    s = Settings()
    base = Leaves()
    scores = []
    for k, (a, b) in enumerate(split(len(base), s.folds)):
        torch.manual_seed(100 + k)
        begin = time.time()
        acc, wait = run_fold(base, a, b, s)
        scores.append(acc)
        print(f"fold {k} accuracy {acc:.3f} in {time.time() - begin:.1f}s (data {wait:.2f}s)", flush=True)
    print(f"accuracy {statistics.mean(scores):.3f} +- {statistics.stdev(scores):.3f}")


if __name__ == "__main__":
    main()
