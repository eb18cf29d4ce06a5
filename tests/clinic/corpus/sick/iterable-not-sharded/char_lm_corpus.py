# cause: iterable-not-sharded, stale-dataset-in-workers
"""Byte-level language model on a folder of text shards, reshuffled each epoch."""
import argparse
import logging
import os
import random
import tempfile
from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger("lm")
WORDS = "the of river stone light under morning water old garden silver over and quiet wind house glass road far slow".split()


def build_corpus(root, shards, docs):
    g = random.Random(11)
    for s in range(shards):
        with open(os.path.join(root, f"shard{s:02d}.txt"), "w") as f:
            for _ in range(docs):
                f.write(" ".join(g.choices(WORDS, k=260)) + ".\n")


class Merges:
    """Byte pair encoding with a fixed list of merges, applied in order."""

    def __init__(self, text, count):
        self.pairs, ids = [], list(text.encode())
        for k in range(count):
            seen = Counter(zip(ids, ids[1:]))
            self.pairs.append((max(seen, key=seen.get), 256 + k))
            ids = self.apply(ids, *self.pairs[-1])
        self.size = 256 + count

    @staticmethod
    def apply(ids, pair, new):
        out, i, a, b = [], 0, *pair
        while i < len(ids):
            if ids[i] == a and i + 1 < len(ids) and ids[i + 1] == b:
                out.append(new)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        return out

    def encode(self, text):
        ids = list(text.encode())
        for pair, new in self.pairs:
            ids = self.apply(ids, pair, new)
        return ids


class Corpus(IterableDataset):
    def __init__(self, root, tokenizer, context, seed=0):
        super().__init__()
        self.root, self.tokenizer, self.context, self.seed = root, tokenizer, context, seed
        self._epoch = 0

    @property
    def files(self):
        return sorted(os.listdir(self.root))

    def set_epoch(self, epoch):
        self._epoch = epoch

    def documents(self):
        g = random.Random(self.seed * 10007 + self._epoch)
        files = self.files
        g.shuffle(files)
        for name in files:
            with open(os.path.join(self.root, name)) as f:
                lines = f.readlines()
            g.shuffle(lines)
            yield from lines

    def __iter__(self):
        carry = []
        for text in self.documents():
            carry.extend(self.tokenizer.encode(text))
            while len(carry) > self.context:
                yield torch.tensor(carry[:self.context + 1])
                carry = carry[self.context:]


class LM(nn.Module):
    """Causal convolutions over embeddings."""

    def __init__(self, vocab, width=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.conv = nn.Conv1d(width, 2 * width, 6)
        self.head = nn.Linear(2 * width, vocab)

    def forward(self, x):
        h = F.pad(self.emb(x).transpose(1, 2), (5, 0))
        return self.head(torch.relu(self.conv(h)).transpose(1, 2))


class Trainer:
    def __init__(self, args, root):
        self.args = args
        tokenizer = Merges(" ".join(WORDS * 3), 80)
        self.corpus = Corpus(root, tokenizer, args.context, args.seed)
        self.loader = DataLoader(self.corpus, batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0, drop_last=True)
        self.model = LM(tokenizer.size)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.seen = 0

    def step(self, chunk):
        logits = self.model(chunk[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.seen += chunk[:, 1:].numel()
        return loss.item()

    def fit(self):
        for epoch in range(self.args.epochs):
            self.corpus.set_epoch(epoch)
            losses = [self.step(chunk) for chunk in self.loader]
            log.info("epoch %d: %d steps, loss %.3f, %d tokens so far", epoch, len(losses), np.mean(losses), self.seen)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="corpus-") as root:
        build_corpus(root, shards=8, docs=60)
        Trainer(args, root).fit()


if __name__ == "__main__":
    main()
