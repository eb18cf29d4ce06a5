# cause: slow-worker-start
"""Glucose forecasting 30 minutes ahead from sensor traces, with leave-group-of-patients-out cross-validation."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

HISTORY, AHEAD = 96, 6


def simulate(patients, points, seed=12):
    rng = np.random.default_rng(seed)
    t = np.arange(points) / 288
    out = []
    for _ in range(patients):
        meals = np.zeros(points)
        meals[rng.integers(0, points, points // 60)] = rng.uniform(20, 80, points // 60)
        response = np.convolve(meals, np.exp(-np.arange(40) / 12) * np.arange(40) / 12)[:points]
        out.append(110 + 15 * np.sin(2 * np.pi * t) + response + np.cumsum(rng.normal(0, 0.4, points)) + rng.normal(0, 2, points))
    return np.array(out, np.float32)


class Windows(Dataset):
    """Windows of the given patients; features are lags, a smoothed trace and its spectrum."""

    def __init__(self, traces, patients, stride):
        self.traces, self.patients = traces, patients
        self.starts = np.arange(0, traces.shape[1] - HISTORY - AHEAD, stride)

    def __len__(self):
        return len(self.patients) * len(self.starts)

    @staticmethod
    def smooth(x, half=6, degree=2):
        """Savitzky-Golay filter, fitted at each point."""
        out = np.empty_like(x)
        for k in range(len(x)):
            lo, hi = max(0, k - half), min(len(x), k + half + 1)
            basis = np.vander(np.arange(lo - k, hi - k), degree + 1)
            out[k] = np.linalg.lstsq(basis, x[lo:hi], rcond=None)[0][-1]
        return out

    def __getitem__(self, i):
        patient, start = self.patients[i // len(self.starts)], self.starts[i % len(self.starts)]
        past = self.traces[patient, start:start + HISTORY]
        future = self.traces[patient, start + HISTORY + AHEAD - 1]
        x = (past - 110) / 30
        s = self.smooth(x)
        spectrum = np.log1p(np.abs(np.fft.rfft(s)))[:16]
        features = np.concatenate([x, s, np.gradient(s), spectrum]).astype(np.float32)
        return torch.from_numpy(features), torch.tensor((future - past[-1]) / 30)


class Forecaster(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.LazyLinear(width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def fold_loaders(traces, held_out, args):
    rest = [p for p in range(len(traces)) if p not in held_out]
    options = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=args.workers > 0)
    return (DataLoader(Windows(traces, rest, args.stride), shuffle=True, **options),
            DataLoader(Windows(traces, held_out, args.stride), **options))


def fit_fold(traces, held_out, args):
    train, test = fold_loaders(traces, held_out, args)
    torch.manual_seed(args.seed)
    model = Forecaster()
    model(torch.zeros(2, 3 * HISTORY + 16))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(args.epochs):
        model.train()
        for x, y in train:
            loss = nn.functional.huber_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    model.eval()
    with torch.no_grad():
        err = torch.cat([model(x) - y for x, y in test])
    return 30 * err.pow(2).mean().sqrt().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patients", type=int, default=12)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stride", type=int, default=54)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start-method", default="spawn")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mp.set_start_method(args.start_method)

    traces = simulate(args.patients, 1200)
    scores, began = [], time.time()
    for fold in range(args.folds):
        t0 = time.time()
        held_out = list(range(fold, args.patients, args.folds))
        scores.append(fit_fold(traces, held_out, args))
        print(json.dumps({"fold": fold, "held_out": held_out, "rmse_mgdl": round(scores[-1], 2), "seconds": round(time.time() - t0, 1)}), flush=True)
    print(json.dumps({"mean": statistics.mean(scores), "sd": statistics.stdev(scores), "total_s": round(time.time() - began, 1)}))


if __name__ == "__main__":
    main()
