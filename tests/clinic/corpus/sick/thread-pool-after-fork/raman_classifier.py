# cause: thread-pool-after-fork
import contextlib
import logging
import os
import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

log = logging.getLogger("raman")


@dataclass
class Settings:
    samples: int = 160
    bins: int = 40000
    classes: int = 5
    batch: int = 8
    loader: dict = field(default_factory=lambda: {"num_workers": 2, "prefetch_factor": 2})
    lr: float = 1e-3


@contextlib.contextmanager
def cpu_share(n):
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Baseline:
    """Removes fluorescence: iterated soft minimum on a stack of shifted copies."""

    def __init__(self, rounds=3, width=8, threads=None):
        self.rounds, self.width, self.threads = rounds, width, threads or (os.cpu_count() or 1)

    def __call__(self, y):
        with cpu_share(self.threads):
            base = y
            for _ in range(self.rounds):
                shifts = torch.stack([torch.roll(base, k) for k in range(-self.width, self.width + 1)])
                base = -torch.logsumexp(-shifts * 4, dim=0) / 4 + np.log(2 * self.width + 1) / 4
            return torch.tanh(y - base)


class Spectra(Dataset):
    def __init__(self, folder, transforms=()):
        self.folder = folder
        self.labels = np.load(os.path.join(folder, "labels.npy"))
        self.transforms = list(transforms)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        y = torch.from_numpy(np.load(os.path.join(self.folder, f"{i:05d}.npy")))
        for t in self.transforms:
            y = t(y)
        return y, int(self.labels[i])


def simulate(folder, cfg):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, cfg.classes, cfg.samples)
    axis = np.linspace(0, 1, cfg.bins, dtype=np.float32)
    for i, c in enumerate(labels):
        y = np.exp(-((axis - 0.15 * (c + 1)) / 0.004) ** 2) + 0.6 * np.exp(-axis * 2) + rng.normal(0, 0.02, cfg.bins)
        np.save(os.path.join(folder, f"{i:05d}.npy"), y.astype(np.float32))
    np.save(os.path.join(folder, "labels.npy"), labels)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.pool = nn.AdaptiveMaxPool1d(400)
        self.mlp = nn.Sequential(nn.Linear(400, 64), nn.GELU(), nn.Linear(64, classes))

    def forward(self, x):
        return self.mlp(self.pool(x.unsqueeze(1)).squeeze(1))


@torch.no_grad()
def accuracy(model, data, n):
    x, y = zip(*(data[i] for i in range(n)))
    return (model(torch.stack(x)).argmax(1) == torch.tensor(y)).float().mean().item()


def fit(cfg):
    with tempfile.TemporaryDirectory() as folder:
        simulate(folder, cfg)
        data = Spectra(folder, [Baseline()])
        train, held = Subset(data, range(40, cfg.samples)), Subset(data, range(40))
        model = Classifier(cfg.classes)
        log.info("accuracy before training: %.2f", accuracy(model, held, 20))
        opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
        loader = DataLoader(train, batch_size=cfg.batch, shuffle=True, **cfg.loader)
        for k, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if k % 10 == 0:
                log.info("batch %d loss %.4f", k, loss.item())
        log.info("accuracy after training: %.2f", accuracy(model, held, 20))


if __name__ == "__main__":
    import sys
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    fit(Settings())
