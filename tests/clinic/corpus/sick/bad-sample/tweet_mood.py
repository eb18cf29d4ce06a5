# cause: bad-sample
"""Mood of short messages. Word-level tokens, fixed length, mean of embeddings."""
import argparse
import collections
import os
import re
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POOL = ["good", "bad", "sun", "rain", "train", "late", "love", "coffee", "monday", "again", "never", "happy", "sad", "dog", "cat"]


def tokenize(text):
    return re.findall(r"[a-z']+|#\w+", text.lower())


class Vocabulary:
    def __init__(self, texts, size):
        counts = collections.Counter(t for x in texts for t in tokenize(x))
        self.index = {w: k + 2 for k, (w, _) in enumerate(counts.most_common(size - 2))}

    def encode(self, text, length):
        ids = [self.index.get(t, 1) for t in tokenize(text)]
        ids += [0] * (length - len(ids))
        return torch.tensor(ids)


class Messages(Dataset):
    def __init__(self, lines, length):
        self.items = [line.rstrip("\n").split("\t") for line in lines]
        self.vocab = Vocabulary((t for _, t in self.items), 200)
        self.length = length

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        label, text = self.items[i]
        time.sleep(0.001)
        return self.vocab.encode(text, self.length), int(label)


def scrape(path, n):
    rng = np.random.default_rng(33)
    with open(path, "w") as f:
        for i in range(n):
            k = int(rng.integers(4, 20)) if i != 640 else 37
            words = rng.choice(POOL, k)
            f.write(f"{int('happy' in words or 'love' in words)}\t{' '.join(words)}\n")


class Mood(nn.Module):
    def __init__(self, vocab, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.out = nn.Linear(width, 2)

    def forward(self, ids):
        mask = (ids > 0).unsqueeze(-1)
        return self.out((self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--messages", type=int, default=1000)
    ap.add_argument("--length", type=int, default=24)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "messages.tsv")
        scrape(path, a.messages)
        with open(path) as f:
            data = Messages(f, a.length)
    loader = DataLoader(data, batch_size=25, num_workers=a.workers, shuffle=True)
    net = Mood(200)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for k, (ids, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if k % 8 == 0:
            print(f"batch {k} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
