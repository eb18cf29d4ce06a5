# cause: iterable-not-sharded
"""Click-through ranking from daily log shards: streamed, shuffled in a buffer, hashed, factorisation machine."""
import argparse
import glob
import gzip
import json
import os
import random
import tempfile
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FIELDS = ("user", "item", "device", "hour", "query", "place")
SLOTS = 1 << 15


def write_logs(folder, shards, rows, seed=0):
    rng = random.Random(seed)
    for shard in range(shards):
        with gzip.open(os.path.join(folder, f"clicks-{shard:03d}.jsonl.gz"), "wt", compresslevel=1) as out:
            for _ in range(rows):
                user, item = rng.randrange(800), rng.randrange(300)
                row = {"user": f"u{user}", "item": f"i{item}", "device": rng.choice(["phone", "desk", "tablet"]), "hour": rng.randrange(24),
                       "query": " ".join(rng.choices(["red", "shoe", "cheap", "lamp", "wood", "blue"], k=5)), "place": f"p{rng.randrange(40)}",
                       "clicked": int((user * 7 + item) % 5 == 0)}
                out.write(json.dumps(row) + "\n")


class ShardFiles:
    """The files of this rank, in a new order each pass."""

    def __init__(self, pattern, rank=0, world=1):
        self.paths = sorted(glob.glob(pattern))[rank::world]

    def __iter__(self):
        return iter(random.sample(self.paths, len(self.paths)))


class ClickStream(IterableDataset):
    def __init__(self, files, buffer=400, dropout=0.05):
        self.files, self.buffer, self.dropout = files, buffer, dropout

    def rows(self):
        for path in self.files:
            with gzip.open(path, "rt") as lines:
                yield from map(json.loads, lines)

    def shuffled(self):
        held = []
        for row in self.rows():
            if len(held) < self.buffer:
                held.append(row)
                continue
            k = random.randrange(self.buffer)
            held[k], row = row, held[k]
            yield row
        random.shuffle(held)
        yield from held

    def encode(self, row):
        slots = []
        for name in FIELDS:
            value = row[name]
            if random.random() < self.dropout:
                value = "?"
            slots.append(zlib.crc32(f"{name}={value}".encode()) % SLOTS)
        words = str(row["query"]).split()
        for a in words:
            for b in words:
                slots.append(zlib.crc32(f"{a}|{b}|{row['item']}".encode()) % SLOTS)
        return torch.tensor(slots), float(row["clicked"])

    def __iter__(self):
        return map(self.encode, self.shuffled())


class FactorisationMachine(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.linear = nn.EmbeddingBag(SLOTS, 1, mode="sum")
        self.factors = nn.Embedding(SLOTS, width, sparse=True)
        self.deep = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, slots):
        vectors = self.factors(slots)
        total = vectors.sum(1)
        pairs = 0.5 * (total.square() - vectors.square().sum(1)).sum(1)
        return self.linear(slots)[:, 0] + pairs + self.deep(total)[:, 0]


def fit(args, folder):
    stream = ClickStream(ShardFiles(os.path.join(folder, "clicks-*.jsonl.gz"), int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))))
    loader = DataLoader(stream, batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0)
    model = FactorisationMachine()
    dense = torch.optim.Adam([*model.linear.parameters(), *model.deep.parameters()], lr=args.lr)
    sparse = torch.optim.SparseAdam(model.factors.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        start, steps, total = time.time(), 0, 0.0
        for slots, clicked in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(slots), clicked.float())
            dense.zero_grad()
            sparse.zero_grad()
            loss.backward()
            dense.step()
            sparse.step()
            total, steps = total + loss.item(), steps + 1
        print(f"epoch {epoch}: {steps} steps, log loss {total / steps:.4f}, {time.time() - start:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="clicks-") as folder:
        write_logs(folder, args.shards, args.rows)
        fit(args, folder)


if __name__ == "__main__":
    main()
