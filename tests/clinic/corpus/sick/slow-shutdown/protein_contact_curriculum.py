# cause: slow-shutdown
"""Contact-map prediction with a length curriculum: short chains first, an epoch ends when its residue budget is spent."""
import logging
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

logging.basicConfig(format="%(levelname).1s %(relativeCreated)6.0f %(message)s", level=logging.INFO)
LOG = logging.getLogger("contacts")

CHAINS = 220
BATCH = 4
BUDGETS = (1300, 1400, 1500)
WORKERS = 4


def random_chain(length, rng):
    steps = rng.normal(size=(length, 3))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    return np.cumsum(3.8 * (steps + [0.05, 0, 0]), axis=0)


def relax(coords, sweeps):
    """Push apart residues that are too close; cost grows with the square of the length."""
    coords = coords.copy()
    for _ in range(sweeps):
        for i in range(len(coords)):
            delta = coords - coords[i]
            dist = np.sqrt((delta ** 2).sum(1)) + 1e-6
            near = (dist < 4.0) & (dist > 1e-3)
            coords[near] += 0.1 * delta[near] / dist[near, None]
    return coords


class Chains(Dataset):
    def __init__(self, count, seed=8):
        rng = np.random.default_rng(seed)
        short = rng.integers(24, 40, count // 4)
        long = rng.integers(500, 620, count - len(short))
        self.length = np.sort(np.concatenate([short, long]))
        self.seed = seed

    def __len__(self):
        return len(self.length)

    def __getitem__(self, index):
        n = int(self.length[index])
        rng = np.random.default_rng((self.seed, index))
        coords = relax(random_chain(n, rng), sweeps=max(4, n // 14))
        dist = np.sqrt(((coords[:, None] - coords[None]) ** 2).sum(-1))
        crop = slice(0, 96)
        contact = (dist[crop, crop] < 8.0).astype(np.float32)
        phase = np.arange(min(n, 96))[:, None] / np.power(50.0, np.arange(6) / 6)
        direction = np.diff(coords[crop], axis=0, prepend=coords[:1])
        features = np.concatenate([np.sin(phase), np.cos(phase), direction], 1).astype(np.float32)
        return torch.from_numpy(features), torch.from_numpy(contact), n


class Curriculum(Sampler):
    """Ascending length, with a little jitter so that neighbours trade places."""

    def __init__(self, lengths, jitter=6):
        self.lengths, self.jitter = np.asarray(lengths, dtype=float), jitter

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        noise = torch.rand(len(self.lengths)).numpy() * self.jitter
        return iter(np.argsort(self.lengths + noise).tolist())


def pad_maps(items):
    size = max(len(f) for f, _, _ in items)
    x = torch.stack([F.pad(f, (0, 0, 0, size - len(f))) for f, _, _ in items])
    y = torch.stack([F.pad(c, (0, size - len(c), 0, size - len(c)), value=-1) for _, c, _ in items])
    return x, y, torch.tensor([n for _, _, n in items])


class ContactNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(15, width), nn.ReLU(), nn.Linear(width, width))
        self.bilinear = nn.Parameter(torch.randn(width, width) / math.sqrt(width) / 8)

    def forward(self, x):
        h = self.encode(x)
        return h @ self.bilinear @ h.transpose(1, 2)


def masked_loss(scores, target):
    mask = target >= 0
    return F.binary_cross_entropy_with_logits(scores[mask], target[mask])


def train_until(budget, model, loader, optimiser):
    spent, losses = 0, []
    for x, y, lengths in loader:
        loss = masked_loss(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        spent += int(lengths.sum())
        if spent >= budget:
            break
    return losses


torch.manual_seed(5)
torch.set_num_threads(1)
chains = Chains(CHAINS)
loader = DataLoader(chains, batch_size=BATCH, sampler=Curriculum(chains.length), num_workers=WORKERS, collate_fn=pad_maps)
model = ContactNet()
optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
for epoch, budget in enumerate(BUDGETS):
    start = time.time()
    losses = train_until(budget, model, loader, optimiser)
    LOG.info("epoch %d: %d steps, loss %.4f, %.1f s", epoch, len(losses), np.mean(losses), time.time() - start)
