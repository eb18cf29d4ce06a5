# cause: unpicklable-dataset
# also: slow-worker-start
"""Topic classification of court opinions. Documents are cut from long rolls (one text file for each court)."""
import functools
import os
import re
import tempfile
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

TOPICS = ["tax", "patent", "labor", "asylum", "zoning"]
WORD = re.compile(r"[a-z]+")


class Roll:
    """A court's opinions in one file, one per line; blocks of lines are kept for a while."""

    def __init__(self, path, block=16):
        self.path, self.block = path, block
        self.starts = self._scan()
        self.lines = functools.lru_cache(maxsize=8)(self._lines)

    def _scan(self):
        starts, pos = [0], 0
        with open(self.path, "rb") as f:
            for line in f:
                pos += len(line)
                starts.append(pos)
        return np.array(starts)

    def _lines(self, number):
        first = number * self.block
        last = min(first + self.block, len(self))
        with open(self.path, "rb") as f:
            f.seek(self.starts[first])
            raw = f.read(self.starts[last] - self.starts[first])
        return raw.decode().splitlines()

    def __len__(self):
        return len(self.starts) - 1

    def line(self, i):
        return self.lines(i // self.block)[i % self.block]


class Vocabulary:
    def __init__(self, texts, size=800):
        count = Counter(w for t in texts for w in WORD.findall(t))
        self.index = {w: k + 1 for k, (w, _) in enumerate(count.most_common(size))}

    def __len__(self):
        return len(self.index) + 1

    def __call__(self, text):
        return [self.index.get(w, 0) for w in WORD.findall(text)]


class Opinions(Dataset):
    def __init__(self, roll, vocabulary):
        self.roll, self.vocabulary = roll, vocabulary

    def __len__(self):
        return len(self.roll)

    def __getitem__(self, i):
        topic, text = self.roll.line(i).split("\t")
        ids = self.vocabulary(text)
        bigrams = Counter(zip(ids, ids[1:]))
        top = [(a * 31 + b) % 997 for (a, b), _ in bigrams.most_common(64)]
        return torch.tensor(ids), torch.tensor(top), TOPICS.index(topic)


def pad(rows):
    ids, top, label = zip(*rows)
    stack = functools.partial(nn.utils.rnn.pad_sequence, batch_first=True)
    return stack(ids), stack(top), torch.tensor(label)


def write_rolls(folder, courts=4, opinions=500):
    rng = np.random.default_rng(23)
    words = np.array(["".join(rng.choice(list("aeioubcdfglmnprst"), rng.integers(3, 9))) for _ in range(1500)])
    paths = []
    for c in range(courts):
        paths.append(os.path.join(folder, f"court{c}.txt"))
        with open(paths[-1], "w") as f:
            for _ in range(opinions):
                topic = int(rng.integers(len(TOPICS)))
                pick = rng.zipf(1.3, rng.integers(200, 700)) % 1200
                mark = rng.random(len(pick)) < 0.05
                pick[mark] = 1200 + topic * 60 + pick[mark] % 60
                f.write(TOPICS[topic] + "\t" + " ".join(words[pick]) + "\n")
    return paths


class BagModel(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.words = nn.EmbeddingBag(len(vocabulary), 32)
        self.pairs = nn.EmbeddingBag(997, 32)
        self.head = nn.Linear(64, len(TOPICS))

    def forward(self, ids, top):
        return self.head(torch.cat([self.words(ids), self.pairs(top)], 1))


def evaluate(model, loader):
    with torch.no_grad():
        hits = [(model(a, b).argmax(1) == y).float() for a, b, y in loader]
    return torch.cat(hits).mean().item()


def main(epochs=4, workers=2):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        rolls = [Roll(p) for p in write_rolls(folder)]
        vocabulary = Vocabulary(roll.line(i) for roll in rolls for i in range(0, len(roll), 5))
        data = ConcatDataset([Opinions(roll, vocabulary) for roll in rolls])
        order = np.random.default_rng(0).permutation(len(data)).tolist()
        options = dict(batch_size=32, collate_fn=pad, num_workers=workers, persistent_workers=True,
                       multiprocessing_context="spawn")
        train = DataLoader(Subset(data, order[300:]), shuffle=True, **options)
        val = DataLoader(Subset(data, order[:300]), **options)

        model = BagModel(vocabulary)
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        for epoch in range(epochs):
            t0, total = time.time(), 0.0
            for ids, top, label in train:
                loss = nn.functional.cross_entropy(model(ids, top), label)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(train):.3f} acc {evaluate(model, val):.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
