# cause: fd-exhausted
# limits: nofile=256
"""Contrastive bird-song embeddings with a memory of recent clips for hard-negative mining."""
import collections
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 8000
SPECIES = 24


def chirp(species, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(SR) / SR
    base = 600 + 110 * species
    sweep = rng.uniform(0.8, 1.2) * 400 * np.sin(2 * np.pi * rng.uniform(2, 9) * t)
    y = np.sin(2 * np.pi * np.cumsum(base + sweep) / SR)
    return (y + rng.normal(0, 0.2, SR)).astype(np.float32)


class Recordings(Dataset):
    def __init__(self, n):
        self.labels = np.random.default_rng(5).integers(0, SPECIES, n)
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.labels)

    def spec(self, species, seed):
        wav = torch.from_numpy(chirp(species, seed))
        s = torch.stft(wav, 256, 128, window=self.window, return_complex=True).abs()
        return torch.log1p(s)[None]

    def __getitem__(self, i):
        y = int(self.labels[i])
        return self.spec(y, 2 * i), self.spec(y, 2 * i + 1), y


class HardNegativePool:
    """Spectrograms of the last batches, reencoded with the current weights when mining."""

    def __init__(self, size=600):
        self.clips = collections.deque(maxlen=size)

    def push(self, spec, labels):
        self.clips.append((spec, labels))

    @torch.no_grad()
    def mine(self, net, anchors, labels):
        if not self.clips:
            return None
        spec, lab = random.choice(self.clips)
        z = net(spec)
        sim = anchors.detach() @ z.T
        sim[labels[:, None] == lab[None]] = -1
        return z[sim.argmax(1)]


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 48))

    def forward(self, x):
        return F.normalize(super().forward(x), dim=-1)


def train(epochs=2):
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Recordings(1200), batch_size=6, shuffle=True, num_workers=2, drop_last=True)
    net, pool = Encoder(), HardNegativePool()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(epochs):
        tot = 0.0
        for a, b, y in loader:
            za, zb = net(a), net(b)
            pos = (za * zb).sum(-1)
            neg = pool.mine(net, za, y)
            negsim = (za * neg).sum(-1) if neg is not None else (za * zb.roll(1, 0)).sum(-1)
            loss = F.relu(0.3 - pos + negsim).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            pool.push(a, y)
            tot += loss.item()
        print("epoch", epoch, "triplet", round(tot / len(loader), 4), "pool", len(pool.clips), flush=True)


if __name__ == "__main__":
    train()
