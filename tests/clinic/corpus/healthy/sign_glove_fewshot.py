"""Few-shot recognition of sign-language gestures from a data glove (prototypical network, 12 sensors)."""
import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SENSORS, STEPS = 12, 160
_crew = {}


def crew():
    """The thread pool of this process."""
    if os.getpid() not in _crew:
        _crew.clear()
        _crew[os.getpid()] = ThreadPoolExecutor(2)
    return _crew[os.getpid()]


class Takes(Dataset):
    """All takes of one gesture."""

    def __init__(self, gesture, count=30):
        self.gesture, self.count = gesture, count

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        shape = np.random.default_rng(self.gesture)
        control = shape.normal(0, 1, (SENSORS, 8))
        rng = np.random.default_rng(10_000 + 100 * self.gesture + k)
        t = np.linspace(0, 7, STEPS) ** rng.uniform(0.85, 1.15)
        t *= 7 / t[-1]
        curve = np.stack([np.interp(t, np.arange(8), c + rng.normal(0, 0.25, 8)) for c in control])
        curve += rng.normal(0, 0.1, curve.shape)
        return torch.from_numpy(curve.astype(np.float32))


def align(curve, reference):
    """Dynamic time warping (coarse) of a take onto the mean of its gesture."""
    a, b = curve[:, ::5], reference[:, ::5]
    cost = np.sqrt(((a[:, :, None] - b[:, None]) ** 2).sum(0))
    total = np.full((cost.shape[0] + 1, cost.shape[1] + 1), np.inf)
    total[0, 0] = 0
    for i in range(cost.shape[0]):
        for j in range(cost.shape[1]):
            total[i + 1, j + 1] = cost[i, j] + min(total[i, j], total[i + 1, j], total[i, j + 1])
    i, j, path = cost.shape[0], cost.shape[1], []
    while i and j:
        path.append((i - 1, j - 1))
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda p: total[p])
    source = np.zeros(cost.shape[1], int)
    for p, q in path:
        source[q] = p
    return np.concatenate([a[:, source], b - a[:, source]])


class References:
    """Mean take of each gesture, by a loader of its own."""

    def __init__(self, support=20):
        self.support, self.known = support, {}

    def __getitem__(self, gesture):
        if gesture not in self.known:
            helpers = 0 if get_worker_info() is not None else 2
            loader = DataLoader(Takes(gesture, self.support), batch_size=10, num_workers=helpers)
            self.known[gesture] = torch.cat(list(loader)).mean(0).numpy()
        return self.known[gesture]


class Episodes(Dataset):
    def __init__(self, gestures, length, ways=4, shots=3):
        self.gestures, self.length, self.ways, self.shots = np.asarray(gestures), length, ways, shots
        self.references = References()

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        chosen = np.random.choice(self.gestures, self.ways, replace=False)
        anchor = self.references[int(chosen[0])]
        jobs = []
        for gesture in chosen:
            takes = Takes(int(gesture))
            for k in np.random.choice(len(takes), self.shots + 1, replace=False):
                jobs.append(crew().submit(align, takes[int(k)].numpy(), anchor))
        x = torch.from_numpy(np.stack([j.result() for j in jobs]).astype(np.float32))
        x = x.reshape(self.ways, self.shots + 1, *x.shape[1:])
        return x[:, :self.shots], x[:, self.shots]


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2 * SENSORS, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
                                  nn.Conv1d(width, width, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())

    def forward(self, x):
        return self.conv(x.flatten(0, -3)).reshape(*x.shape[:-2], -1)


def scores(encoder, support, query):
    return -torch.cdist(encoder(query), encoder(support).mean(2))


def epoch_of(encoder, loader, opt=None):
    right = []
    for support, query in loader:
        s = scores(encoder, support, query)
        truth = torch.arange(s.shape[1]).expand(len(s), -1)
        if opt:
            loss = nn.functional.cross_entropy(s.flatten(0, 1), truth.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
        right.append((s.argmax(-1) == truth).float().mean().item())
    return np.mean(right)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--episodes", type=int, default=200)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    options = dict(batch_size=5, num_workers=args.workers, persistent_workers=args.workers > 0)
    train_loader = DataLoader(Episodes(range(16), args.episodes), **options)
    test_loader = DataLoader(Episodes(range(16, 24), args.episodes // 4), **options)
    encoder = Encoder()
    opt = torch.optim.Adam(encoder.parameters(), lr=2e-3)
    for e in range(args.epochs):
        t0 = time.time()
        fit = epoch_of(encoder, train_loader, opt)
        with torch.no_grad():
            print(f"epoch {e}: seen {fit:.3f} new {epoch_of(encoder, test_loader):.3f} {time.time() - t0:.1f} s", flush=True)
