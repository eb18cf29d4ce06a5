# cause: iterable-not-sharded
"""Pretrain an encoder on a weighted mixture of sources (web, code, dialogue)."""
import logging
import random
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")


@dataclass
class Source:
    name: str
    path: Path
    weight: float

    def fill(self, n, seed):
        r = random.Random(seed)
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("create table docs (id integer primary key, body text)")
            rows = [(i, f"{self.name}{i} " + " ".join(str(r.randrange(9999)) for _ in range(150))) for i in range(n)]
            db.executemany("insert into docs values (?, ?)", rows)

    def documents(self):
        with closing(sqlite3.connect(self.path)) as db:
            for _, body in db.execute("select id, body from docs order by id"):
                yield body


class Tokeniser:
    def __init__(self, size=2000, length=128):
        self.size, self.length = size, length

    def __call__(self, body):
        ids = []
        for word in body.split():
            value = 7
            for _ in range(6):
                for ch in word:
                    value = (value * 131 + ord(ch)) & 0xFFFFFFFF
            ids.append(1 + value % (self.size - 1))
        return torch.tensor((ids + [0] * self.length)[: self.length])


class Mixture(IterableDataset):
    def __init__(self, sources, tokeniser):
        self.sources = sources
        self.tokeniser = tokeniser

    def __iter__(self):
        live = {s.name: (s.weight, s.documents()) for s in self.sources}
        while live:
            names = list(live)
            name = random.choices(names, [live[n][0] for n in names])[0]
            body = next(live[name][1], None)
            if body is None:
                del live[name]
                continue
            yield self.tokeniser(body)


class Encoder(nn.Module):
    def __init__(self, vocab, dim=64, layers=1):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        block = nn.TransformerEncoderLayer(dim, 4, 128, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.body(self.emb(ids)))


@dataclass
class Run:
    epochs: int = 1
    batch: int = 12
    mask_rate: float = 0.15
    counts: dict = field(default_factory=lambda: {"web": 80, "code": 48, "talk": 32})

    def go(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as tmp:
            sources = []
            for k, (name, n) in enumerate(self.counts.items()):
                src = Source(name, Path(tmp) / f"{name}.sqlite", weight=n)
                src.fill(n, seed=k)
                sources.append(src)
            loader = DataLoader(Mixture(sources, Tokeniser()), batch_size=self.batch, num_workers=2)
            model = Encoder(2000)
            opt = torch.optim.AdamW(model.parameters(), 1e-3)
            for epoch in range(self.epochs):
                seen = 0
                for ids in loader:
                    hidden = torch.rand(ids.shape) < self.mask_rate
                    logits = model(ids.masked_fill(hidden, 0))
                    loss = nn.functional.cross_entropy(logits[hidden], ids[hidden])
                    loss.backward()
                    opt.step()
                    opt.zero_grad()
                    seen += len(ids)
                logging.info("epoch %d: %d documents, loss %.3f", epoch, seen, loss.item())


if __name__ == "__main__":
    Run().go()
