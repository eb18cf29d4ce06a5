# cause: slow-worker-start
"""5-fold cross validation of a solubility regressor on SMILES strings."""
import argparse
import random
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

ATOMS = ["C", "N", "O", "F", "Cl", "Br", "S", "c", "n", "(", ")", "=", "1", "2"]
BITS = 512


def fake_library(n):
    rng = random.Random(5)
    rows = []
    for _ in range(n):
        smi = "".join(rng.choices(ATOMS, k=rng.randint(20, 60)))
        rows.append({"smiles": smi, "logS": smi.count("O") * 0.4 - smi.count("Cl") * 0.7})
    return rows


class CircularFingerprint:
    """Hashes every fragment up to `radius` symbols into a bit vector."""

    def __init__(self, radius=4, bits=BITS):
        self.radius, self.bits = radius, bits

    def __call__(self, smiles):
        fp = np.zeros(self.bits, dtype=np.float32)
        for r in range(1, self.radius + 1):
            for i in range(len(smiles) - r + 1):
                h = 2166136261
                for ch in smiles[i:i + r]:
                    h = ((h ^ ord(ch)) * 16777619) & 0xFFFFFFFF
                fp[h % self.bits] += 1.0
        return np.log1p(fp)


class SolubilitySet(Dataset):
    def __init__(self, rows, featurizer):
        self.rows = rows
        self.featurizer = featurizer

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.from_numpy(self.featurizer(row["smiles"])), torch.tensor(row["logS"], dtype=torch.float32)


def folds(n, k, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, k)
    for j in range(k):
        yield np.concatenate(parts[:j] + parts[j + 1:]).tolist(), parts[j].tolist()


def loaders(dataset, train_idx, valid_idx, args):
    # the cluster nodes touch CUDA before we get here
    opts = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=True,
                multiprocessing_context=mp.get_context("spawn"))
    return (DataLoader(Subset(dataset, train_idx), shuffle=True, **opts),
            DataLoader(Subset(dataset, valid_idx), **opts))


def epoch(model, loader, opt=None):
    total, n = 0.0, 0
    with torch.set_grad_enabled(opt is not None):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item() * len(y)
            n += len(y)
    return total / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folds", type=int, default=5)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()

    dataset = SolubilitySet(fake_library(600), CircularFingerprint())
    scores = []
    for k, (tr, va) in enumerate(folds(len(dataset), args.folds)):
        torch.manual_seed(k)
        t0 = time.time()
        train_loader, valid_loader = loaders(dataset, tr, va, args)
        model = nn.Sequential(nn.Linear(BITS, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for e in range(args.epochs):
            tr_loss = epoch(model.train(), train_loader, opt)
            va_loss = epoch(model.eval(), valid_loader)
            print(f"fold {k} epoch {e} train {tr_loss:.4f} valid {va_loss:.4f} ({time.time() - t0:.1f}s)", flush=True)
        scores.append(va_loss ** 0.5)
    print(f"RMSE {np.mean(scores):.4f} +- {np.std(scores):.4f}")


if __name__ == "__main__":
    main()
