# cause: iterable-not-sharded
"""Click-through rate from gzipped ad logs, streamed stage by stage."""
import gzip
import json
import random
import tempfile
import time
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FILES, LINES, BUCKETS = 6, 1000, 4096
EPOCHS, BATCH, WORKERS = 2, 128, 2
DEVICES = ["phone", "tablet", "desktop", "tv"]


def write_logs(folder):
    g = random.Random(3)
    for k in range(FILES):
        with gzip.open(folder / f"part-{k:03d}.jsonl.gz", "wt", compresslevel=4) as f:
            for _ in range(LINES):
                ad, dev = g.randrange(300), g.choice(DEVICES)
                p = 0.1 + 0.5 * ((ad * 7919) % 10 < 3) + 0.1 * (dev == "phone")
                row = {"ad": ad, "device": dev, "hour": g.randrange(24), "query": [f"w{g.randrange(900)}" for _ in range(40)],
                       "page": "".join(g.choices("abcdefghij ", k=500)), "click": int(g.random() < p)}
                f.write(json.dumps(row) + "\n")


class Stage(IterableDataset):
    """One stage of the pipeline; stages are chained with `>>`."""

    def __init__(self):
        self.upstream = None

    def __rshift__(self, other):
        other.upstream = self
        return other

    def __iter__(self):
        for item in self.upstream:
            yield from self.process(item)

    def process(self, item):
        raise NotImplementedError


class ListLogs(Stage):
    def __init__(self, folder, pattern="part-*.jsonl.gz"):
        super().__init__()
        self.folder, self.pattern = folder, pattern

    def __iter__(self):
        yield from sorted(Path(self.folder).glob(self.pattern))


class ReadLines(Stage):
    def process(self, path):
        with gzip.open(path, "rt") as f:
            for line in f:
                yield json.loads(line)


class HashFeatures(Stage):
    def __init__(self, buckets):
        super().__init__()
        self.buckets = buckets

    def slot(self, text):
        return zlib.crc32(text.encode()) % self.buckets

    def process(self, row):
        words = row["query"] + row["page"].split()
        grams = [row["page"][i:i + 3] for i in range(0, len(row["page"]) - 3)]
        slots = [self.slot(f"ad={row['ad']}"), self.slot(f"dev={row['device']}"), self.slot(f"ad={row['ad']}|{row['device']}"),
                 self.slot(f"h={row['hour']}")]
        slots += [self.slot("q=" + w) for w in words][:60]
        dense = [0] * 64
        for t in grams:
            dense[self.slot(t) & 63] += 1
        out = torch.zeros(64, dtype=torch.long)
        out[:len(slots)] = torch.tensor(slots)
        yield out, torch.tensor(dense).log1p(), torch.tensor(float(row["click"]))


class Mix(Stage):
    """Reservoir shuffle."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def __iter__(self):
        pool = []
        for item in self.upstream:
            if len(pool) < self.size:
                pool.append(item)
                continue
            j = random.randrange(self.size)
            pool[j], item = item, pool[j]
            yield item
        random.shuffle(pool)
        yield from pool


class WideAndShallow(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(BUCKETS, 16, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(80, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, slots, dense):
        return self.mlp(torch.cat([self.emb(slots), dense], 1)).squeeze(1)


torch.set_num_threads(1)
with tempfile.TemporaryDirectory(prefix="adlogs-") as tmp:
    write_logs(Path(tmp))
    pipeline = ListLogs(tmp) >> ReadLines() >> HashFeatures(BUCKETS) >> Mix(512)
    loader = DataLoader(pipeline, batch_size=BATCH, num_workers=WORKERS, prefetch_factor=4)
    model = WideAndShallow()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        begin, seen, running = time.perf_counter(), 0, 0.0
        for step, (slots, dense, click) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(slots, dense), click)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(click)
            running += loss.item() * len(click)
        print(f"epoch {epoch}: {step + 1} steps, {seen} impressions, logloss {running / seen:.4f}, {time.perf_counter() - begin:.1f} s", flush=True)
