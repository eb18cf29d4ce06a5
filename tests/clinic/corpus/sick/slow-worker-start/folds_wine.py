# cause: slow-worker-start
"""Wine quality from mass spectra, k-fold cross-validation with a fresh loader for every fold."""
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Options:
    bottles: int = 120
    peaks: int = 1200
    folds: int = 2
    epochs: int = 2
    loader: dict = field(default_factory=lambda: dict(batch_size=12, num_workers=2, persistent_workers=True,
                                                      multiprocessing_context="spawn"))


def bottle(path, rng, peaks):
    quality = rng.uniform(3, 9)
    mz = np.sort(rng.uniform(50, 650, peaks))
    height = rng.exponential(1, peaks) * (1 + 0.1 * quality * (np.abs(mz - 300) < 40))
    np.savetxt(path, np.stack([mz, height], 1), header=f"{quality:.3f}", fmt="%.4f")


class Spectra(Dataset):
    def __init__(self, folder, bins=300):
        self.files = sorted(Path(folder).glob("*.txt"))
        self.edges = np.linspace(50, 650, bins + 1)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with open(self.files[i]) as fh:
            quality = float(fh.readline().lstrip("# "))
            table = np.loadtxt(fh)
        hist, _ = np.histogram(table[:, 0], self.edges, weights=table[:, 1])
        return torch.from_numpy(np.sqrt(hist)).float(), torch.tensor(quality)


def folds(n, k, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    for part in np.array_split(order, k):
        yield np.setdiff1d(order, part).tolist(), part.tolist()


def run_fold(data, train_ids, test_ids, opts):
    loader = DataLoader(Subset(data, train_ids), shuffle=True, **opts.loader)
    model = nn.Sequential(nn.BatchNorm1d(300), nn.Linear(300, 32), nn.ReLU(), nn.Linear(32, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(opts.epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()
    x, y = next(iter(DataLoader(Subset(data, test_ids), len(test_ids))))
    with torch.no_grad():
        return (model(x).squeeze(1) - y).abs().mean().item()


def main(opts):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(3)
        for i in range(opts.bottles):
            bottle(Path(folder) / f"{i:04d}.txt", rng, opts.peaks)
        data = Spectra(folder)
        errors = []
        for k, (train_ids, test_ids) in enumerate(folds(len(data), opts.folds)):
            began = time.perf_counter()
            errors.append(run_fold(data, train_ids, test_ids, opts))
            print(f"fold {k} mae {errors[-1]:.3f} in {time.perf_counter() - began:.1f} s", flush=True)
        print(f"mean absolute error {np.mean(errors):.3f} +- {np.std(errors):.3f}")


if __name__ == "__main__":
    main(Options())
