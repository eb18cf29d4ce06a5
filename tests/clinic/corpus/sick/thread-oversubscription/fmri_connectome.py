# cause: thread-oversubscription
"""Age regression from functional connectomes computed on the fly from parcel time series."""
import os

# node defaults of the compute cluster
os.environ.setdefault("OMP_NUM_THREADS", "16")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "16")

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Cohort(Dataset):
    def __init__(self, subjects, parcels=140, scans=260, seed=0):
        self.subjects, self.parcels, self.scans, self.seed = subjects, parcels, scans, seed
        self.age = np.random.default_rng(seed).uniform(20, 80, subjects)
        self.mix = np.random.default_rng(1).normal(size=(parcels, parcels)) / np.sqrt(parcels)

    def __len__(self):
        return self.subjects

    def series(self, i):
        rng = np.random.default_rng((self.seed, i))
        latent = rng.normal(size=(self.parcels, self.scans))
        return latent + self.age[i] / 80 * self.mix @ latent

    def shrunk_precision(self, x, alpha=0.1):
        x = x - x.mean(1, keepdims=True)
        cov = x @ x.T / x.shape[1]
        cov = (1 - alpha) * cov + alpha * np.trace(cov) / len(cov) * np.eye(len(cov))
        prec = np.eye(len(cov)) / np.trace(cov)
        for _ in range(14):
            prec = prec @ (2 * np.eye(len(cov)) - cov @ prec)
        return prec

    def __getitem__(self, i):
        windows = [self.shrunk_precision(self.series(i)[:, s: s + 130]) for s in (0, 65, 130)]
        prec = np.mean(windows, 0)
        d = np.sqrt(np.abs(np.diag(prec)))
        partial = -prec / np.outer(d, d)
        upper = np.triu_indices(self.parcels, 1)
        return torch.from_numpy(partial[upper].astype(np.float32)), torch.tensor(self.age[i] / 80, dtype=torch.float32)


def make_model(features):
    return nn.Sequential(nn.Dropout(0.3), nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, test = Cohort(120), Cohort(24, seed=9)
    opts = dict(batch_size=8, num_workers=4, persistent_workers=True)
    train_loader = DataLoader(train, shuffle=True, **opts)
    test_loader = DataLoader(test, **opts)
    model = make_model(train.parcels * (train.parcels - 1) // 2)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(2):
        model.train()
        for x, age in train_loader:
            loss = nn.functional.smooth_l1_loss(model(x), age)
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            mae = np.mean([80 * (model(x) - a).abs().mean().item() for x, a in test_loader])
        print(f"epoch {epoch}  train loss {loss.item():.4f}  test mae {mae:.1f} years", flush=True)


if __name__ == "__main__":
    main()
