"""Dialect identification on a stream of phrases from shard files, character convolution network."""
import json
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOWELS = ["aeiou", "aeo", "iou", "aei"]
CONSONANTS = ["bcdfg", "klmnp", "rstvw", "bdgmn"]


def phrase(dialect, rng):
    words = []
    for _ in range(rng.randint(5, 16)):
        source = dialect if rng.random() < 0.55 else rng.randrange(4)
        words.append("".join(rng.choice(CONSONANTS[source]) + rng.choice(VOWELS[source]) for _ in range(rng.randint(1, 4))))
    return " ".join(words)


def write_shards(folder, shards=6, rows=330):
    rng = random.Random(77)
    paths = []
    for s in range(shards):
        path = os.path.join(folder, f"part-{s:03d}.jsonl")
        with open(path, "w") as stream:
            for _ in range(rows + s):
                dialect = rng.randrange(4)
                stream.write(json.dumps({"text": phrase(dialect, rng), "dialect": dialect}) + "\n")
        paths.append(path)
    return paths


class PhraseStream(IterableDataset):
    """Shards are dealt out to the workers; a shuffle buffer mixes the phrases of a worker."""

    def __init__(self, paths, buffer=128, seed=0):
        self.paths, self.buffer, self.seed = list(paths), buffer, seed
        self.epoch = torch.zeros(1, dtype=torch.long).share_memory_()

    def set_epoch(self, epoch):
        self.epoch.fill_(epoch)

    def mine(self, rng):
        paths = self.paths[:]
        rng.shuffle(paths)
        info = get_worker_info()
        return paths if info is None else paths[info.id :: info.num_workers]

    def rows(self, rng):
        for path in self.mine(rng):
            with open(path) as stream:
                yield from map(json.loads, stream)

    def __iter__(self):
        rng = random.Random(1000 * self.seed + int(self.epoch))
        pool = []
        for row in self.rows(rng):
            pool.append(row)
            if len(pool) > self.buffer:
                yield self.encode(pool.pop(rng.randrange(len(pool))), rng)
        rng.shuffle(pool)
        for row in pool:
            yield self.encode(row, rng)

    def encode(self, row, rng):
        text = row["text"]
        if rng.random() < 0.2:
            text = text.replace(rng.choice("aeiou"), "e")
        grams = {}
        for n in (2, 3):
            for i in range(len(text) - n + 1):
                grams[text[i : i + n]] = grams.get(text[i : i + n], 0) + 1
        hashed = torch.zeros(128)
        for gram, count in grams.items():
            hashed[sum(ord(c) * 31 ** k for k, c in enumerate(gram)) % 128] += count
        return torch.tensor([ord(c) - 31 for c in text]).clamp_(0, 95), hashed / max(1, len(text)), row["dialect"]


def collate(rows):
    text, hashed, dialect = zip(*rows)
    return pad_sequence(text, batch_first=True), torch.stack(hashed), torch.tensor(dialect)


class CharNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(96, width, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, k, padding=k // 2) for k in (3, 5, 7))
        self.head = nn.Linear(3 * width + 128, 4)

    def forward(self, text, hashed):
        x = self.embed(text).transpose(1, 2)
        pooled = [F.relu(conv(x)).amax(2) for conv in self.convs]
        return self.head(torch.cat([*pooled, hashed], 1))


class Trainer:
    epochs = 4

    def __init__(self, paths):
        self.train_set, self.test_set = PhraseStream(paths[:-1]), PhraseStream(paths[-1:], buffer=1)
        self.train = DataLoader(self.train_set, batch_size=32, num_workers=2, persistent_workers=True, collate_fn=collate)
        self.test = DataLoader(self.test_set, batch_size=64, num_workers=1, persistent_workers=True, collate_fn=collate)
        self.model = CharNet()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def fit(self):
        for epoch in range(self.epochs):
            self.train_set.set_epoch(epoch)
            start, rows = time.time(), 0
            for text, hashed, dialect in self.train:
                loss = F.cross_entropy(self.model(text, hashed), dialect)
                self.optimiser.zero_grad()
                loss.backward()
                self.optimiser.step()
                rows += len(dialect)
            print(f"epoch {epoch}: {rows} rows, loss {loss.item():.3f}, accuracy {self.score():.3f}, {time.time() - start:.1f} s", flush=True)

    @torch.no_grad()
    def score(self):
        hits = total = 0
        for text, hashed, dialect in self.test:
            hits += (self.model(text, hashed).argmax(1) == dialect).sum().item()
            total += len(dialect)
        return hits / total


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="phrases-") as folder:
        Trainer(write_shards(folder)).fit()
