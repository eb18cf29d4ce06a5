# cause: too-many-workers
"""Bag-of-words topic tagging of a newswire dump (one JSON document per line)."""
import json
import os
import random
import re
import tempfile
import time
import zlib
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TOKEN = re.compile(r"[a-z]+|\d+")
TOPICS = ("politics", "markets", "sport", "science")


@dataclass
class Config:
    n_docs: int = 2400
    n_buckets: int = 1024
    batch_size: int = 16
    num_workers: int = 16
    epochs: int = 8
    lr: float = 5e-3
    dump: str = field(default_factory=lambda: os.path.join(tempfile.mkdtemp(prefix="newswire_"), "dump.jsonl"))


def write_dump(cfg):
    rng = random.Random(3)
    words = ["".join(rng.choice("abcdefghijklmnop") for _ in range(rng.randint(3, 9))) for _ in range(3000)]
    themes = {t: rng.sample(words, 60) for t in TOPICS}
    pool = {t: [" ".join(rng.choices(words, k=24) + rng.choices(themes[t], k=8)) for _ in range(80)] for t in TOPICS}
    with open(cfg.dump, "w") as f:
        for i in range(cfg.n_docs):
            topic = TOPICS[i % len(TOPICS)]
            paragraphs = [{"n": j, "text": s, "spans": [[k, k + 5, "NP"] for k in range(0, 160, 6)]}
                          for j, s in enumerate(rng.choices(pool[topic], k=9))]
            f.write(json.dumps({"id": i, "topic": topic, "body": paragraphs, "meta": {"wire": "AB", "lang": "en"}}) + "\n")


class NewswireStream(IterableDataset):
    """Streams the dump; document i belongs to worker i mod n."""

    def __init__(self, path, n_buckets):
        self.path = path
        self.n_buckets = n_buckets

    def encode(self, doc):
        text = " ".join(p["text"] for p in doc["body"]).lower()
        hashed = [zlib.crc32(tok.encode()) % self.n_buckets for tok in TOKEN.findall(text)]
        bag = torch.bincount(torch.tensor(hashed), minlength=self.n_buckets).float()
        return torch.log1p(bag), TOPICS.index(doc["topic"])

    def __iter__(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        with open(self.path) as f:
            for line in f:
                doc = json.loads(line)
                if doc["id"] % n != wid:
                    continue
                yield self.encode(doc)


class Tagger(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, n_out))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.loader = DataLoader(NewswireStream(cfg.dump, cfg.n_buckets), batch_size=cfg.batch_size,
                                 num_workers=cfg.num_workers, persistent_workers=True)
        self.model = Tagger(cfg.n_buckets, len(TOPICS))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=0.9)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            t0, seen, right = time.time(), 0, 0
            for bags, labels in self.loader:
                logits = self.model(bags)
                loss = F.cross_entropy(logits, labels)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                seen += len(labels)
                right += (logits.argmax(1) == labels).sum().item()
            print(f"[{epoch}] docs={seen} acc={right / seen:.3f} time={time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Config()
    write_dump(config)
    Trainer(config).fit()
