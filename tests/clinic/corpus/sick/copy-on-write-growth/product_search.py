# cause: copy-on-write-growth
"""Query/title relevance with in-catalogue negatives; hashed character trigrams, bi-encoder."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIM = 2048
NEGATIVES = 8
SALTS = (2166136261, 40503, 65537, 2654435769, 97, 1299709)


def load_catalogue(n=800_000):
    adjectives = [f"adj{k}" for k in range(700)]
    nouns = [f"noun{k}" for k in range(900)]
    rnd = random.Random(0)
    rows = []
    for k in range(n):
        a, b = adjectives[int(rnd.random() * 700)], nouns[int(rnd.random() * 900)]
        rows.append((f"{a} {b} for sale", f"{b} {a} model {k} original", 1000 + k, k * 0.01))
    return rows


def trigrams(text):
    vec = np.zeros(DIM, dtype=np.float32)
    for i in range(len(text) - 2):
        for h in SALTS:
            for c in text[i : i + 3]:
                h = ((h ^ ord(c)) * 16777619) & 0xFFFFFFFF
            vec[h % DIM] += 1
    return vec


class RelevanceTriples(Dataset):
    def __init__(self, rows, epoch_size):
        self.rows = rows
        self.epoch_size = epoch_size

    def __len__(self):
        return self.epoch_size

    def __getitem__(self, i):
        query, title, sku, price = self.rows[random.randrange(len(self.rows))]
        docs, prices = [trigrams(title)], [price]
        while len(docs) <= NEGATIVES:
            _, other, other_sku, other_price = self.rows[random.randrange(len(self.rows))]
            if other_sku != sku:
                docs.append(trigrams(other))
                prices.append(other_price)
        q = trigrams(query)
        rough = np.stack([np.convolve(d, [0.25, 0.5, 0.25], mode="same") for d in docs])
        return (torch.from_numpy(q), torch.from_numpy(rough.astype(np.float32)),
                torch.tensor(prices, dtype=torch.float32).log1p())


class BiEncoder(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.q = nn.Linear(DIM, hidden)
        self.d = nn.Linear(DIM, hidden)
        self.price = nn.Linear(1, 1)

    def forward(self, q, docs, prices):
        sim = torch.einsum("bh,bnh->bn", self.q(q), self.d(docs))
        return sim + self.price(prices.unsqueeze(-1)).squeeze(-1)


def train(loader, model, epochs, lr):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        total = hits = seen = 0
        for q, docs, prices in loader:
            scores = model(q, docs, prices)
            loss = nn.functional.cross_entropy(scores, torch.zeros(len(q), dtype=torch.long))
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(q)
            hits += (scores.argmax(1) == 0).sum().item()
            total += loss.item() * len(q)
        print(f"epoch {epoch}: loss {total / seen:.4f} hit@1 {hits / seen:.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = load_catalogue()
    print(f"{len(rows)} products", flush=True)
    loader = DataLoader(RelevanceTriples(rows, 3000), batch_size=32, num_workers=2, persistent_workers=True)
    train(loader, BiEncoder(), epochs=3, lr=0.05)
