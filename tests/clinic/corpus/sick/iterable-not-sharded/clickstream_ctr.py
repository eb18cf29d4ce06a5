# cause: iterable-not-sharded
"""CTR model trained from gzip'd JSON-lines click logs, read as a stream with a shuffle buffer."""
import argparse
import gzip
import hashlib
import json
import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

BUCKETS = 4096


def write_logs(root, files, rows):
    rnd = random.Random(7)
    for k in range(files):
        with gzip.open(root / f"part-{k:03d}.jsonl.gz", "wt") as f:
            for r in range(rows):
                words = [f"w{rnd.randrange(3000)}" for _ in range(120)]
                item = {"id": k * rows + r, "query": " ".join(words), "position": rnd.randrange(10),
                        "clicked": int(rnd.random() < 0.25)}
                f.write(json.dumps(item) + "\n")


def featurise(event):
    toks = event["query"].split()
    grams = toks + [a + "_" + b for a, b in zip(toks, toks[1:])] + [a + "_" + b for a, b in zip(toks, toks[2:])]
    idx = [int.from_bytes(hashlib.blake2b(f"{salt}{g}".encode(), digest_size=4).digest(), "little") % BUCKETS
           for g in grams for salt in range(4)]
    x = torch.zeros(BUCKETS)
    x[torch.tensor(idx)] = 1.0
    return x, torch.tensor([event["position"] / 10]), torch.tensor(float(event["clicked"]))


class ClickLog(IterableDataset):
    def __init__(self, paths, buffer=64):
        self.paths = list(paths)
        self.buffer = buffer

    def events(self):
        order = torch.randperm(len(self.paths)).tolist()
        for k in order:
            with gzip.open(self.paths[k], "rt") as f:
                for line in f:
                    yield json.loads(line)

    def __iter__(self):
        pool = []
        for event in self.events():
            pool.append(event)
            if len(pool) >= self.buffer:
                j = int(torch.randint(len(pool), ()))
                pool[j], pool[-1] = pool[-1], pool[j]
                yield featurise(pool.pop())
        for event in pool:
            yield featurise(event)


class WideModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(BUCKETS, 16)
        self.head = nn.Linear(17, 1)

    def forward(self, words, pos):
        return self.head(torch.cat([self.wide(words).relu(), pos], 1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--files", type=int, default=6)
    ap.add_argument("--rows", type=int, default=180)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        root = Path(tmp)
        write_logs(root, args.files, args.rows)
        log = ClickLog(sorted(root.glob("part-*.jsonl.gz")))
        loader = DataLoader(log, batch_size=32, num_workers=args.workers)
        model = WideModel()
        opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
        crit = nn.BCEWithLogitsLoss()
        for epoch in range(args.epochs):
            running, steps = 0.0, 0
            for words, pos, y in loader:
                opt.zero_grad(set_to_none=True)
                loss = crit(model(words, pos), y)
                loss.backward()
                opt.step()
                running += loss.item()
                steps += 1
            print(f"[{epoch}] steps={steps} logloss={running / steps:.4f}", flush=True)


if __name__ == "__main__":
    main()
