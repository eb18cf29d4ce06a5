# cause: iterable-not-sharded
# also: rng-repeated
"""Query-document retrieval with sampled negatives, pairs read from a log."""
import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

VOCAB = 3000


class Tokens:
    def __init__(self, length):
        self.length = length

    def __call__(self, text):
        ids = []
        for w in text.split():
            h = 17
            for _ in range(20):
                for c in w:
                    h = (h * 31 + ord(c)) % (VOCAB - 1)
            ids.append(h + 1)
        return torch.tensor((ids + [0] * self.length)[: self.length])


class Negatives:
    """Draws documents that do not belong to the query."""

    def __init__(self, documents, k, seed):
        self.documents, self.k = documents, k
        self.random = np.random.default_rng(seed)

    def draw(self, positive):
        picks = self.random.choice(len(self.documents), size=self.k + 1, replace=False)
        return [self.documents[p] for p in picks if p != positive][: self.k]


class PairLog(IterableDataset):
    def __init__(self, path, documents, negatives, tokens):
        self.path, self.documents, self.negatives, self.tokens = path, documents, negatives, tokens

    def __iter__(self):
        with open(self.path) as f:
            for line in f:
                row = json.loads(line)
                docs = [self.documents[row["doc"]], *self.negatives.draw(row["doc"])]
                yield self.tokens(row["query"]), torch.stack([self.tokens(d) for d in docs])


class BiEncoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.q = nn.Sequential(nn.Linear(dim, 256), nn.ReLU(), nn.Linear(256, dim))
        self.d = nn.Sequential(nn.Linear(dim, 256), nn.ReLU(), nn.Linear(256, dim))

    def forward(self, query, docs):
        q = self.q(self.emb(query).mean(1))
        d = self.d(self.emb(docs).mean(2))
        return torch.einsum("bd,bkd->bk", q, d)


def write_log(path, n):
    rs = np.random.RandomState(5)
    docs = [" ".join(f"w{k}" for k in rs.randint(0, 900, 24)) for _ in range(200)]
    with open(path, "w") as f:
        for i in range(n):
            k = int(rs.randint(len(docs)))
            f.write(json.dumps({"id": i, "query": " ".join(docs[k].split()[i % 12:i % 12 + 8]), "doc": k}) + "\n")
    return docs


def main(epochs=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "pairs.jsonl")
        docs = write_log(path, 240)
        data = PairLog(path, docs, Negatives(docs, 4, seed=1), Tokens(24))
        loader = DataLoader(data, batch_size=16, num_workers=2, persistent_workers=True)
        model = BiEncoder()
        opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(epochs):
            hits = rows = 0
            for query, documents in loader:
                scores = model(query, documents)
                loss = nn.functional.cross_entropy(scores, torch.zeros(len(query), dtype=torch.long))
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += int((scores.argmax(1) == 0).sum())
                rows += len(query)
            print(f"epoch {epoch} recall@1 {hits / rows:.3f} over {rows} pairs", flush=True)


if __name__ == "__main__":
    main()
