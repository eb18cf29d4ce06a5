# cause: thread-oversubscription
"""Motor-imagery decoding: spatial covariances of EEG trials in the tangent space, then a small network."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Amplifier:
    """Synthetic multichannel trials; the two classes differ in which sources are strong."""

    def __init__(self, channels, samples):
        self.mixing = np.random.default_rng(0).standard_normal((channels, channels))
        self.channels, self.samples = channels, samples

    def trial(self, key):
        rng = np.random.default_rng(key)
        sources = rng.standard_normal((self.channels, self.samples))
        half = self.channels // 2
        sources[:half] *= 1.5 if key % 2 else 1.0
        return self.mixing @ sources


class TangentSpace:
    def __init__(self, channels):
        self.rows, self.cols = np.triu_indices(channels)

    @staticmethod
    def logm(spd):
        values, vectors = np.linalg.eigh(spd)
        return (vectors * np.log(np.maximum(values, 1e-8))) @ vectors.T

    def __call__(self, trial):
        cov = trial @ trial.T / trial.shape[1]
        shrunk = 0.95 * cov + 0.05 * np.trace(cov) / len(cov) * np.eye(len(cov))
        return self.logm(shrunk)[self.rows, self.cols].astype(np.float32)


class Trials(Dataset):
    def __init__(self, amplifier, transform, keys):
        self.amplifier, self.transform, self.keys = amplifier, transform, keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        key = self.keys[i]
        return torch.from_numpy(self.transform(self.amplifier.trial(key))), key % 2


def evaluate(net, loader):
    with torch.no_grad():
        hits = [(net(x).argmax(1) == y).float().mean().item() for x, y in loader]
    return float(np.mean(hits))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--channels", type=int, default=96)
    p.add_argument("--samples", type=int, default=256)
    p.add_argument("--trials", type=int, default=640)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=8)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    space = TangentSpace(args.channels)
    device = Amplifier(args.channels, args.samples)
    train = DataLoader(Trials(device, space, range(args.trials)), args.batch, shuffle=True, num_workers=args.workers)
    test = DataLoader(Trials(device, space, range(10_000, 10_016)), args.batch, num_workers=args.workers)
    net = nn.Sequential(nn.Linear(len(space.rows), 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    began = time.time()
    for step, (x, y) in enumerate(train):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    net.eval()
    print(f"test accuracy {evaluate(net, test):.3f} total {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
