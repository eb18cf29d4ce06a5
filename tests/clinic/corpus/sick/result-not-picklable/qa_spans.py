# cause: result-not-picklable
"""Extractive question answering on synthetic paragraphs: predict the start of the answer."""
import argparse
import time
from dataclasses import dataclass
from typing import Callable

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = [f"w{i}" for i in range(800)]


@dataclass
class Batch:
    tokens: torch.Tensor
    start: torch.Tensor
    keys: list
    text: Callable

    def __len__(self):
        return len(self.keys)


class Paragraphs(Dataset):
    def __init__(self, n, length, seed=0):
        rng = np.random.default_rng(seed)
        self.docs = rng.integers(2, 800, (n, length))
        self.start = rng.integers(0, length - 3, n)
        for d, s in zip(self.docs, self.start):
            d[s] = 1

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        time.sleep(0.002)
        return i, torch.from_numpy(self.docs[i]), int(self.start[i])


class Collator:
    def __init__(self, words):
        self.words = words

    def __call__(self, samples):
        keys, tokens, start = zip(*samples)
        rows = [t.tolist() for t in tokens]
        return Batch(torch.stack(tokens), torch.tensor(start), list(keys),
                     text=lambda k, a, b: " ".join(self.words[t] for t in rows[k][a:b]))


class Reader(nn.Module):
    def __init__(self, vocab, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.score = nn.Linear(width, 1)

    def forward(self, t):
        h = torch.relu(self.mix(self.embed(t).transpose(1, 2))).transpose(1, 2)
        return self.score(h).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--paragraphs", type=int, default=800)
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(Paragraphs(a.paragraphs, 60), a.batch, shuffle=True, num_workers=a.workers, collate_fn=Collator(WORDS))
    net = Reader(len(WORDS))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step, batch in enumerate(loader):
        out = net(batch.tokens)
        loss = nn.functional.cross_entropy(out, batch.start)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            s = int(out[0].argmax())
            print(f"step {step} loss {loss.item():.3f} answer of {batch.keys[0]}: {batch.text(0, s, s + 3)!r}", flush=True)


if __name__ == "__main__":
    main()
