# cause: thread-pool-after-fork
"""Contact-map prediction. Distances of a chain are computed on the fly with torch."""
import argparse
import functools
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@contextmanager
def threads(n):
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pairwise(coords, n_threads):
    """Soft distance matrix averaged over conformers."""
    with threads(n_threads):
        d = torch.cdist(coords, coords)
        return torch.exp(-d / 8.0).mean(0)


class Chains(Dataset):
    def __init__(self, folder, features):
        self.files = sorted(Path(folder).glob("*.npy"))
        self.features = features

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        coords = torch.from_numpy(np.load(self.files[i]))
        soft = self.features(coords)
        contact = (torch.cdist(coords[:1], coords[:1])[0] < 8.0).float()
        return soft[None], contact


def fold_chains(folder, n, length, conformers):
    rng = np.random.default_rng(9)
    for i in range(n):
        walk = rng.normal(0, 2.2, (1, length, 3)).cumsum(1)
        jitter = rng.normal(0, 0.7, (conformers, length, 3))
        np.save(Path(folder) / f"chain{i:03d}.npy", (walk + jitter).astype(np.float32))


class ContactNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=2, dilation=2),
                                 nn.ReLU(), nn.Conv2d(width, 1, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def baseline(data, features):
    """Frequency of contacts, to initialise the bias of the last layer."""
    rates = [data[i][1].mean().item() for i in range(4)]
    return float(np.log(np.mean(rates) / (1 - np.mean(rates))))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--chains", type=int, default=48)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--conformers", type=int, default=10)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--feature-threads", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        fold_chains(tmp, args.chains, args.length, args.conformers)
        features = functools.partial(pairwise, n_threads=args.feature_threads)
        data = Chains(tmp, features)
        model = ContactNet()
        with torch.no_grad():
            model.net[-1].bias.fill_(baseline(data, features))
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        loader = DataLoader(data, 4, shuffle=True, num_workers=args.workers, persistent_workers=True)
        for epoch in range(args.epochs):
            for x, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
