# limits: memory=1G
"""Cuisine from the text of a recipe: hashed n-grams of many short documents that are held packed in memory."""
import re
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

RECIPES = 20_000
CUISINES = 12
BUCKETS = 1 << 14
KEEP = 256
EPOCHS = 2
BATCH = 64
TOKEN = re.compile(r"[a-z]+|\d+")


def write_cookbook(count, seed=0):
    """Yields (text, cuisine); each cuisine prefers some words."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnoprstuvw"))
    words = np.array(["".join(rng.choice(letters, rng.integers(4, 9))) for _ in range(1500)])
    for start in range(0, count, 1000):
        cuisines = rng.integers(0, CUISINES, 1000)
        common = rng.integers(0, 1500, (1000, 100))
        special = cuisines[:, None] * 100 + rng.integers(0, 100, (1000, 20))
        for cuisine, row in zip(cuisines, np.concatenate([common, special], 1)):
            yield " ".join(words[row]), int(cuisine)


class PackedText:
    """Strings end to end in one array of bytes."""

    def __init__(self, texts):
        pieces = [text.encode() for text in texts]
        self.ends = np.cumsum([len(p) for p in pieces])
        self.bytes = np.frombuffer(b"".join(pieces), np.uint8)

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        start = self.ends[i - 1] if i else 0
        return self.bytes[start:self.ends[i]].tobytes().decode()


class Recipes(Dataset):
    def __init__(self, texts, cuisines, drop=0.0):
        self.texts, self.cuisines, self.drop = texts, cuisines, drop

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        tokens = TOKEN.findall(self.texts[i].lower())
        if self.drop:
            kept = np.random.random(len(tokens)) >= self.drop
            tokens = [t for t, k in zip(tokens, kept) if k]
        grams = tokens + [a + "_" + b for a, b in zip(tokens, tokens[1:])]
        grams += [t[k:k + n] for t in tokens for n in (3, 4, 5) for k in range(len(t) - n + 1)]
        ids = np.fromiter((zlib.crc32(g.encode()) % BUCKETS for g in grams), np.int64, len(grams))
        unique, counts = np.unique(ids, return_counts=True)
        chosen = np.argpartition(-counts, min(KEEP, len(counts) - 1))[:KEEP]
        return unique[chosen], np.log1p(counts[chosen]).astype(np.float32), self.cuisines[i]


def bag(samples):
    ids, weights, labels = zip(*samples)
    offsets = np.cumsum([0] + [len(i) for i in ids[:-1]])
    return (torch.from_numpy(np.concatenate(ids)), torch.from_numpy(offsets),
            torch.from_numpy(np.concatenate(weights)), torch.tensor(labels))


class BagClassifier(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, width, mode="sum")
        self.out = nn.Linear(width, CUISINES)

    def forward(self, ids, offsets, weights):
        return self.out(torch.tanh(self.bag(ids, offsets, per_sample_weights=weights)))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts, cuisines = zip(*write_cookbook(RECIPES))
    cuisines = np.array(cuisines)
    texts = PackedText(texts)
    dataset = Recipes(texts, cuisines, drop=0.1)
    loader = DataLoader(dataset, BATCH, sampler=RandomSampler(dataset, num_samples=3_000), num_workers=2,
                        collate_fn=bag, persistent_workers=True)
    model = BagClassifier()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        began, right, seen = time.time(), 0, 0
        for step, (ids, offsets, weights, labels) in enumerate(loader):
            logits = model(ids, offsets, weights)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == labels).sum().item()
            seen += len(labels)
        print(f"epoch {epoch} accuracy {right / seen:.3f} {seen / (time.time() - began):.0f} recipes/s", flush=True)
