# cause: unpicklable-dataset
"""Recipe retrieval: title and ingredient list are embedded by two small towers."""
import argparse
import collections
import shutil
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = "oat rye fig leek plum beet kale rice corn bean pear lime mint sage dill clove thyme cumin".split()


def build_database(path, count):
    gen = torch.Generator().manual_seed(4)
    con = sqlite3.connect(path)
    con.execute("create table recipe (id integer primary key, title text, ingredients text)")
    for i in range(count):
        picks = torch.randint(len(WORDS), (8,), generator=gen).tolist()
        con.execute("insert into recipe values (?, ?, ?)",
                    (i, " ".join(WORDS[p] for p in picks[:3]), ", ".join(WORDS[p] for p in picks)))
    con.commit()
    con.close()


class Meter:
    """Moving average that the trainer's reporter may read while it is being fed."""

    def __init__(self, span=50):
        self.values = collections.deque(maxlen=span)
        self._guard = threading.Lock()

    def add(self, value):
        with self._guard:
            self.values.append(float(value))

    def mean(self):
        with self._guard:
            return sum(self.values) / max(len(self.values), 1)


class Vocabulary:
    def __init__(self, words):
        self.index = {w: i + 1 for i, w in enumerate(words)}
        self.lengths = Meter()

    def encode(self, text):
        ids = [self.index.get(w.strip(","), 0) for w in text.split()]
        self.lengths.add(len(ids))
        return torch.tensor(ids)

    def __len__(self):
        return len(self.index) + 1


class PadPairs:
    def __init__(self, vocabulary, limit=16):
        self.vocabulary, self.limit = vocabulary, limit

    def _pad(self, texts):
        ids = [self.vocabulary.encode(t)[: self.limit] for t in texts]
        return nn.utils.rnn.pad_sequence(ids, batch_first=True)

    def __call__(self, rows):
        titles, ingredients = zip(*rows)
        return self._pad(titles), self._pad(ingredients)


class RecipeTable(Dataset):
    def __init__(self, path, count):
        self.path, self.count = str(path), count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        con = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            row = con.execute("select title, ingredients from recipe where id = ?", (i,)).fetchone()
        finally:
            con.close()
        time.sleep(0.002)
        return row


class Towers(nn.Module):
    def __init__(self, size, dim=32):
        super().__init__()
        self.title = nn.EmbeddingBag(size, dim, padding_idx=0)
        self.items = nn.EmbeddingBag(size, dim, padding_idx=0)

    def forward(self, a, b):
        return F.normalize(self.title(a), dim=1) @ F.normalize(self.items(b), dim=1).T


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--recipes", type=int, default=600)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--start", default="forkserver", choices=["fork", "forkserver", "spawn"])
    args = p.parse_args()
    root = Path(tempfile.mkdtemp())
    try:
        build_database(root / "recipes.db", args.recipes)
        vocabulary = Vocabulary(WORDS)
        loader = DataLoader(RecipeTable(root / "recipes.db", args.recipes), args.batch, shuffle=True, drop_last=True,
                            num_workers=args.workers, collate_fn=PadPairs(vocabulary),
                            multiprocessing_context=args.start if args.workers else None, persistent_workers=args.workers > 0)
        model, meter = Towers(len(vocabulary)), Meter()
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        for epoch in range(args.epochs):
            for a, b in loader:
                scores = model(a, b) * 12
                loss = F.cross_entropy(scores, torch.arange(len(a)))
                opt.zero_grad()
                loss.backward()
                opt.step()
                meter.add(loss.item())
            print(f"epoch {epoch} loss {meter.mean():.3f}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
