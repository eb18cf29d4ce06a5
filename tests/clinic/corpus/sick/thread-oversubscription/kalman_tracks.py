# cause: thread-oversubscription
"""Learned covariance correction for a multi-sensor smoother: batches of tracks are smoothed on the fly."""
import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TrackSimulator:
    def __init__(self, steps=160, sensors=2, seed=0):
        self.steps, self.sensors, self.seed = steps, sensors, seed

    def __call__(self, i):
        rng = np.random.default_rng((self.seed, i))
        noise = 0.1 + rng.random()
        path = np.cumsum(np.cumsum(rng.standard_normal((self.steps, 2)), 0) * 0.05, 0)
        obs = path[:, None] + noise * rng.standard_normal((self.steps, self.sensors, 2))
        return path.astype(np.float64), obs.astype(np.float64), noise


class BatchSmoother:
    """Whole-track MAP estimate: solves the normal equations of the second-difference prior."""

    def __init__(self, steps, lam=40.0):
        d2 = np.diff(np.eye(steps), 2, axis=0)
        self.prior = torch.from_numpy(lam * d2.T @ d2)
        self.eye = torch.eye(steps, dtype=torch.float64)

    def __call__(self, obs, noise, iterations=6):
        y = torch.from_numpy(obs)
        weight = torch.ones(y.shape[0], dtype=torch.float64)
        for _ in range(iterations):
            info = self.prior + torch.diag(weight * y.shape[1] / noise ** 2)
            cov = info @ info.T + 1e-6 * self.eye
            rhs = (weight / noise ** 2).unsqueeze(1) * y.sum(1)
            est = torch.linalg.solve(info, rhs)
            resid = (y - est.unsqueeze(1)).norm(dim=-1).mean(1)
            weight = 1.0 / (1.0 + resid) + 0 * cov.diagonal()
        return est, resid


class SmoothedTracks(Dataset):
    def __init__(self, n, steps=160):
        self.n = n
        self.simulate = TrackSimulator(steps)
        self.smooth = BatchSmoother(steps)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        path, obs, noise = self.simulate(i)
        est, resid = self.smooth(obs, noise)
        x = torch.cat([est, resid.unsqueeze(1)], dim=1).float()
        return x, torch.from_numpy(path).float() - x[:, :2]


def init_worker(worker_id):
    # workers start with a single intra-op thread; give the solver all it can use
    torch.set_num_threads(8)


class Corrector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(3, 16, 7, padding=3), nn.Tanh(), nn.Conv1d(16, 2, 7, padding=3))

    def forward(self, x):
        return self.net(x.transpose(1, 2)).transpose(1, 2)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tracks", type=int, default=1600)
    ap.add_argument("--epochs", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(SmoothedTracks(args.tracks), batch_size=16, shuffle=True, num_workers=2,
                        worker_init_fn=init_worker, persistent_workers=True)
    model = Corrector()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t0 = time.time()
        total = 0.0
        for step, (x, target) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} mean {total / len(loader):.4f} {args.tracks / (time.time() - t0):.0f} tracks/s", flush=True)


if __name__ == "__main__":
    main()
