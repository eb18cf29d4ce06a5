# cause: lock-held-at-fork
"""Part-of-speech style tagger using a gazetteer that is read from sharded files while the rest is set up."""
import gzip
import json
import pathlib
import random
import tempfile
import threading
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

TAGS = ["O", "PER", "LOC", "ORG"]


class Gazetteer:
    """Word -> feature table. Reading the shards off the filer takes a while, so it goes on behind the scenes."""

    def __init__(self, root):
        self._root = pathlib.Path(root)
        self._table = {}
        self._mutex = threading.Lock()
        self._reader = threading.Thread(target=self._read_all, name="gazetteer", daemon=True)
        self._reader.start()

    def _read_all(self):
        with self._mutex:
            for shard in sorted(self._root.glob("*.json.gz")):
                time.sleep(0.15)  # filer latency
                with gzip.open(shard, "rt") as fh:
                    self._table.update(json.load(fh))

    def __getitem__(self, word):
        with self._mutex:
            return self._table.get(word, [0.0, 0.0, 0.0])


def write_gazetteer(root, words, shards=30):
    rng = random.Random(2)
    per = len(words) // shards + 1
    for s in range(shards):
        part = words[s * per:(s + 1) * per]
        with gzip.open(pathlib.Path(root) / f"part-{s:03d}.json.gz", "wt") as fh:
            json.dump({w: [round(rng.random(), 3) for _ in range(3)] for w in part}, fh)


class Sentences(Dataset):
    def __init__(self, words, gazetteer, n, seed):
        rng = random.Random(seed)
        self.gazetteer = gazetteer
        self.items = [[rng.choice(words) for _ in range(rng.randint(6, 30))] for _ in range(n)]

    def __len__(self):
        return len(self.items)

    @staticmethod
    def shape_features(word):
        hashed = [0.0] * 13
        for n in (2, 3, 4):
            for k in range(len(word) - n + 1):
                hashed[sum(map(ord, word[k:k + n])) % 13] += 1.0
        return hashed

    def __getitem__(self, i):
        rows, tags = [], []
        for w in self.items[i]:
            gaz = self.gazetteer[w]
            rows.append(self.shape_features(w) + gaz)
            tags.append(1 + max(range(3), key=gaz.__getitem__) if sum(gaz) > 1.6 else 0)
        return torch.tensor(rows), torch.tensor(tags)


def collate(batch):
    xs, ys = zip(*batch)
    return pad_sequence(xs, batch_first=True), pad_sequence(ys, batch_first=True, padding_value=-100)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, len(TAGS))

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 11))) for _ in range(9000)]
    net = Tagger()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    with tempfile.TemporaryDirectory() as root:
        write_gazetteer(root, words)
        gazetteer = Gazetteer(root)
        train = DataLoader(Sentences(words, gazetteer, 1600, 3), batch_size=32, shuffle=True, num_workers=2,
                           collate_fn=collate)
        for epoch in range(3):
            total = 0.0
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=-100)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(train):.4f}", flush=True)


if __name__ == "__main__":
    main()
