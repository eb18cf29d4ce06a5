"""Topic model on a million headlines held in memory as packed arrays, with a small bounded cache of hot pages."""
import time
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TOPICS = 8
BUCKETS = 1024


class PackedStrings:
    """Strings end to end in one byte array with an array of offsets."""

    def __init__(self, strings):
        encoded = [s.encode() for s in strings]
        self.offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=self.offsets[1:])
        self.data = np.frombuffer(b"".join(encoded), np.uint8)

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, i):
        return self.data[self.offsets[i]:self.offsets[i + 1]]


class BoundedCache:
    def __init__(self, limit):
        self.limit = limit
        self.items = OrderedDict()

    def get(self, key, make):
        if key in self.items:
            self.items.move_to_end(key)
            return self.items[key]
        value = self.items[key] = make(key)
        if len(self.items) > self.limit:
            self.items.popitem(last=False)
        return value


class Headlines(Dataset):
    def __init__(self, texts, topics, page=64):
        self.texts, self.topics, self.page = texts, topics, page
        self.cache = BoundedCache(limit=32)

    def __len__(self):
        return len(self.texts) // self.page

    def vectorise(self, n):
        bag = np.zeros(BUCKETS, np.float32)
        for k in range(n * self.page, (n + 1) * self.page):
            text = self.texts[k].astype(np.int64)
            np.add.at(bag, (text[:-1] * 31 + text[1:]) % BUCKETS, 1.0)
        return torch.from_numpy(np.log1p(bag))

    def __getitem__(self, n):
        return self.cache.get(n, self.vectorise).clone(), int(self.topics[n])


def simulate(count, page):
    rng = np.random.default_rng(0)
    topics = rng.integers(0, TOPICS, count // page)
    words = ["vote", "goal", "stock", "storm", "film", "trial", "atom", "train"]
    texts = [f"{words[t]} story {n}" for n, t in enumerate(np.repeat(topics, page).tolist())]
    return PackedStrings(texts), topics


class TopicNet(nn.Module):
    def __init__(self, width=2048):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(BUCKETS, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, width), nn.GELU(), nn.Linear(width, TOPICS))

    def forward(self, x):
        return self.layers(x)


def main(count=600_000, page=64, epochs=2):
    torch.manual_seed(0)
    texts, topics = simulate(count, page)
    loader = DataLoader(Headlines(texts, topics, page), 32, shuffle=True, num_workers=2, persistent_workers=True)
    model = TopicNet()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4)
    for epoch in range(epochs):
        start, wait, last = time.time(), 0.0, time.time()
        for n, (bags, topic) in enumerate(loader):
            wait += time.time() - last
            loss = nn.functional.cross_entropy(model(bags), topic)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if n % 50 == 0:
                print(f"epoch {epoch} batch {n} loss {loss.item():.3f}", flush=True)
            last = time.time()
        print(f"epoch {epoch} took {time.time() - start:.1f} s, waiting {wait:.1f} s", flush=True)


if __name__ == "__main__":
    main()
