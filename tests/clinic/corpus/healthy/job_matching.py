"""Job-title matching with random negatives; the register is kept as packed bytes plus offsets."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DIM = 2048
NEGATIVES = 8
SALTS = (2166136261, 40503, 65537, 2654435769, 97, 1299709)


class Register:
    """Pairs of strings and a salary, stored in flat arrays."""

    def __init__(self, n=300_000):
        rnd = random.Random(0)
        blob, ends = bytearray(), []
        for k in range(n):
            a, b = f"level{int(rnd.random() * 700)}", f"role{int(rnd.random() * 900)}"
            for text in (f"{a} {b} wanted", f"{b} {a} opening {k} full time"):
                blob += text.encode()
                ends.append(len(blob))
        self.blob = np.frombuffer(bytes(blob), dtype=np.uint8)
        self.ends = np.array([0] + ends, dtype=np.int64)
        self.pay = np.arange(n, dtype=np.float32) * 0.01

    def __len__(self):
        return len(self.pay)

    def text(self, j):
        return self.blob[self.ends[j] : self.ends[j + 1]].tobytes().decode()

    def __getitem__(self, k):
        return self.text(2 * k), self.text(2 * k + 1), k, float(self.pay[k])


def trigrams(text):
    vec = np.zeros(DIM, dtype=np.float32)
    for i in range(len(text) - 2):
        for h in SALTS:
            for c in text[i : i + 3]:
                h = ((h ^ ord(c)) * 16777619) & 0xFFFFFFFF
            vec[h % DIM] += 1
    return vec


class MatchTriples(Dataset):
    def __init__(self, rows, epoch_size):
        self.rows = rows
        self.epoch_size = epoch_size

    def __len__(self):
        return self.epoch_size

    def __getitem__(self, i):
        query, title, key, pay = self.rows[random.randrange(len(self.rows))]
        docs, pays = [trigrams(title)], [pay]
        while len(docs) <= NEGATIVES:
            _, other, other_key, other_pay = self.rows[random.randrange(len(self.rows))]
            if other_key != key:
                docs.append(trigrams(other))
                pays.append(other_pay)
        q = trigrams(query)
        rough = np.stack([np.convolve(d, [0.25, 0.5, 0.25], mode="same") for d in docs])
        return (torch.from_numpy(q), torch.from_numpy(rough.astype(np.float32)),
                torch.tensor(pays, dtype=torch.float32).log1p())


class BiEncoder(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.q = nn.Linear(DIM, hidden)
        self.d = nn.Linear(DIM, hidden)
        self.pay = nn.Linear(1, 1)

    def forward(self, q, docs, pays):
        sim = torch.einsum("bh,bnh->bn", self.q(q), self.d(docs))
        return sim + self.pay(pays.unsqueeze(-1)).squeeze(-1)


def train(loader, model, epochs, lr):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        total = hits = seen = 0
        for q, docs, pays in loader:
            scores = model(q, docs, pays)
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
    rows = Register()
    print(f"{len(rows)} openings", flush=True)
    loader = DataLoader(MatchTriples(rows, 3000), batch_size=32, num_workers=2, persistent_workers=True)
    train(loader, BiEncoder(), epochs=2, lr=0.05)
