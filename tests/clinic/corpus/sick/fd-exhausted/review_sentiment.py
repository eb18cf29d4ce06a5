# cause: fd-exhausted
# limits: nofile=256
"""Sentiment of product reviews: hashed n-grams, an embedding bag and a ranking metric."""
import math
import random
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUCKETS = 4096
GOOD = "lovely sturdy bright quick reliable comfortable crisp generous".split()
BAD = "flimsy slow noisy broken dull sticky cramped late".split()
PLAIN = "the box handle charger came with cable screen weight colour colour fits desk after weeks battery case light".split()


class Reviews(Dataset):
    """Texts are stored as word numbers; the n-gram hashing is done on the fly."""

    vocabulary = GOOD + BAD + PLAIN

    def __init__(self, count, seed, length=220):
        rng = np.random.default_rng(seed)
        self.polarity = rng.integers(0, 2, count)
        plain = rng.integers(len(GOOD) + len(BAD), len(self.vocabulary), (count, length))
        opinion = rng.integers(0, 8, (count, length)) + np.where(self.polarity == 1, 0, 8)[:, None]
        self.words = np.where(rng.random((count, length)) < 0.06, opinion, plain).astype(np.int16)
        self.ids = rng.permutation(10 * count)[:count]

    def __len__(self):
        return len(self.words)

    def text(self, index):
        return " ".join(self.vocabulary[w] for w in self.words[index])

    def ngrams(self, text):
        words = text.split()
        for n in (1, 2, 3):
            for start in range(len(words) - n + 1):
                yield zlib.crc32(" ".join(words[start:start + n]).encode()) % BUCKETS

    def __getitem__(self, index):
        counts = np.zeros(BUCKETS, dtype=np.float32)
        for bucket in self.ngrams(self.text(index)):
            counts[bucket] += 1
        return {"features": np.log1p(counts), "polarity": np.float32(self.polarity[index]), "review": int(self.ids[index])}


class RankingMetric:
    """Area under the ROC curve over everything seen since the last reset."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.truth, self.reviews = [], [], []

    def update(self, logits, batch):
        self.scores.append(logits.detach().sigmoid())
        self.truth.append(batch["polarity"])
        self.reviews.append(batch["review"])

    def compute(self):
        scores, truth = torch.cat(self.scores), torch.cat(self.truth)
        rank = scores.argsort().argsort().double() + 1
        positive = truth.sum().item()
        negative = len(truth) - positive
        area = (rank[truth > 0].sum().item() - positive * (positive + 1) / 2) / max(1.0, positive * negative)
        return area, torch.cat(self.reviews)[scores.argmax()].item()


class SentimentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Linear(BUCKETS, 24, bias=False)
        self.head = nn.Sequential(nn.LayerNorm(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))

    def forward(self, features):
        return self.head(self.table(features)).squeeze(1)


def make(count, seed, batch_size, **more):
    return DataLoader(Reviews(count, seed), batch_size=batch_size, num_workers=2, persistent_workers=True, **more)


def main(epochs=3):
    random.seed(0)
    torch.manual_seed(0)
    train_loader = make(1600, seed=1, batch_size=16, shuffle=True)
    test_loader = make(1200, seed=2, batch_size=6)
    model, metric = SentimentModel(), RankingMetric()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.BCEWithLogitsLoss()
    best = -math.inf
    for epoch in range(epochs):
        start, running = time.perf_counter(), 0.0
        model.train()
        for batch in train_loader:
            loss = criterion(model(batch["features"]), batch["polarity"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
        print(f"[{epoch}] train loss {running / len(train_loader):.4f} ({time.perf_counter() - start:.1f} s)", flush=True)
        model.eval()
        metric.reset()
        with torch.no_grad():
            for batch in test_loader:
                metric.update(model(batch["features"]), batch)
        area, top = metric.compute()
        best = max(best, area)
        print(f"[{epoch}] test AUC {area:.4f} (best {best:.4f}), most positive review {top}", flush=True)


if __name__ == "__main__":
    main()
