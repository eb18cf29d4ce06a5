# cause: iterable-not-sharded
"""Byte-level language model over text shards on disk."""
import argparse
import glob
import gzip
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS = "the a model data train batch of in to with loss step layer token shard line and for at on".split()


def write_shards(folder, shards, lines):
    r = random.Random(0)
    for s in range(shards):
        with gzip.open(os.path.join(folder, f"part-{s:03d}.txt.gz"), "wt", compresslevel=1) as f:
            for k in range(lines):
                f.write(f"{s * lines + k} " + " ".join(r.choices(WORDS, k=120)) + "\n")


class ShardedText(IterableDataset):
    def __init__(self, pattern, seq_len=128, shuffle_shards=True):
        super().__init__()
        self.shards = sorted(glob.glob(pattern))
        if not self.shards:
            raise FileNotFoundError(pattern)
        self.seq_len = seq_len
        self.shuffle_shards = shuffle_shards

    @staticmethod
    def normalise(line):
        out = []
        for tok in line.lower().split():
            tok = "".join(c if c.isalnum() else "_" for c in tok)
            out.append(tok)
        return " ".join(out)

    def encode(self, line):
        text = self.normalise(line)
        for _ in range(12):  # iterative whitespace and punctuation clean-up
            text = self.normalise(text)
        ids = list(text.encode("utf-8", "ignore"))[: self.seq_len + 1]
        ids += [0] * (self.seq_len + 1 - len(ids))
        return torch.tensor(ids)

    def __iter__(self):
        order = list(self.shards)
        if self.shuffle_shards:
            random.shuffle(order)
        for path in order:
            with gzip.open(path, "rt") as f:
                for line in f:
                    ids = self.encode(line.strip())
                    yield ids[:-1], ids[1:]


class TinyLM(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(256, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, 256)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(h)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=8)
    ap.add_argument("--lines", type=int, default=24)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="corpus") as folder:
        write_shards(folder, args.shards, args.lines)
        dataset = ShardedText(os.path.join(folder, "part-*.txt.gz"))
        loader = DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers, drop_last=True)
        model = TinyLM()
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        for epoch in range(args.epochs):
            start, tokens = time.time(), 0
            for step, (x, y) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
                opt.zero_grad()
                loss.backward()
                opt.step()
                tokens += x.numel()
                if step % 8 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.3f} tok/s {tokens / (time.time() - start):.0f}", flush=True)
            print(f"epoch {epoch} done after {step + 1} steps, {tokens} tokens")


if __name__ == "__main__":
    main()
