# cause: thread-oversubscription
# also: transform-bound, not-fed-fast-enough
"""EEG classification from spatial covariance matrices."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def matrix_root(a, steps=12):
    """Square root of a positive matrix by the Newton-Schulz iteration."""
    norm = a.norm()
    y, z, eye = a / norm, torch.eye(len(a)), torch.eye(len(a))
    for _ in range(steps):
        t = 0.5 * (3 * eye - z @ y)
        y, z = y @ t, t @ z
    return y * norm.sqrt()


class Trials(Dataset):
    def __init__(self, n, channels, samples):
        self.n, self.channels, self.samples = n, channels, samples
        self.mix = torch.randn(2, channels, channels, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = self.mix[i % 2] @ torch.randn(self.channels, self.samples, generator=g)
        x = x - x.mean(1, keepdim=True)
        root = matrix_root(x @ x.T / self.samples + torch.eye(self.channels))
        return torch.log1p(root.diagonal().abs()), i % 2


class Head(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(channels), nn.Linear(channels, 2)

    def forward(self, x):
        return self.fc(self.norm(x))


def setup_worker(worker_id):
    torch.set_num_threads(16)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trials", type=int, default=240)
    p.add_argument("--channels", type=int, default=96)
    p.add_argument("--samples", type=int, default=256)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(1)
    data = Trials(a.trials, a.channels, a.samples)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, worker_init_fn=setup_worker, persistent_workers=True)
    model = Head(a.channels)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(a.epochs):
        t, good = time.time(), 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            good += int((out.argmax(1) == y).sum())
        print(f"epoch {epoch} accuracy {good / a.trials:.2f} {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
