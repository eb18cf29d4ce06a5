# limits: nofile=256
"""Bird call survey: per-species average precision over the whole survey after each epoch."""
import argparse
import time
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 10


class Calls(Dataset):
    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.first + i)
        kind = (self.first + i) % SPECIES
        patch = rng.normal(0, 1, (1, 48, 64)).astype(np.float32)
        patch[:, 4 * kind:4 * kind + 6] += 0.8
        return torch.from_numpy(patch), kind


class SurveyMetrics:
    """Collects scores and labels of every batch, and the last few spectrograms for the report."""

    def __init__(self, keep=300):
        self.scores, self.kinds = [], []
        self.examples = deque(maxlen=keep)

    def update(self, patches, logits, kinds):
        self.scores.append(logits.softmax(1))
        self.kinds.append(kinds.clone())
        self.examples.append(patches[0].clone())

    def compute(self):
        scores, kinds = torch.cat(self.scores), torch.cat(self.kinds)
        result = []
        for s in range(SPECIES):
            order = scores[:, s].argsort(descending=True)
            hit = (kinds[order] == s).float()
            precision = hit.cumsum(0) / torch.arange(1, len(hit) + 1)
            result.append((precision * hit).sum() / hit.sum().clamp(min=1))
        return torch.stack(result)


class CallNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(width, width * 2, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((12, 2)))
        self.head = nn.Linear(width * 2 * 24, SPECIES)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(0)
    train = DataLoader(Calls(0, 4800), 48, shuffle=True, num_workers=args.workers, persistent_workers=True)
    survey = DataLoader(Calls(10**6, 4500), 15, num_workers=args.workers, persistent_workers=True)
    model = CallNet()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        start = time.time()
        model.train()
        for patches, kinds in train:
            loss = nn.functional.cross_entropy(model(patches), kinds)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        print(f"epoch {epoch} loss {loss.item():.3f} in {time.time() - start:.1f} s", flush=True)
        start = time.time()
        model.eval()
        metrics = SurveyMetrics()
        with torch.no_grad():
            for patches, kinds in survey:
                metrics.update(patches, model(patches), kinds)
        print(f"epoch {epoch} mean average precision {metrics.compute().mean():.3f} in {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
