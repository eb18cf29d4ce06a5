# cause: iterable-not-sharded
# also: workers-restarted
"""Ticket routing trained from a spool of gzip'ed JSON lines, many short passes."""
import gzip
import json
import os
import random
import shutil
import tempfile
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

QUEUES = ["billing", "network", "hardware", "account"]


def spool(folder, files, per_file):
    rng = random.Random(6)
    for k in range(files):
        with gzip.open(os.path.join(folder, f"part-{k:02d}.jsonl.gz"), "wt") as f:
            for j in range(per_file):
                q = rng.randrange(4)
                words = ["w%d" % (rng.randrange(50) * 4 + (q if rng.random() < 0.6 else rng.randrange(4))) for _ in range(20)]
                f.write(json.dumps({"id": k * per_file + j, "queue": QUEUES[q], "body": " ".join(words)}) + "\n")


class TicketStream(IterableDataset):
    def __init__(self, folder, dim):
        self.parts = [os.path.join(folder, n) for n in sorted(os.listdir(folder))]
        self.dim = dim

    def _records(self):
        for part in self.parts:
            with gzip.open(part, "rt") as f:
                for line in f:
                    yield json.loads(line)

    def __iter__(self):
        for rec in self._records():
            time.sleep(0.001)
            v = torch.zeros(self.dim)
            for w in rec["body"].split():
                v[zlib.crc32(w.encode()) % self.dim] += 1
            yield v, QUEUES.index(rec["queue"])


class Meter:
    def __init__(self):
        self.n = self.good = 0

    def update(self, out, y):
        self.n += len(y)
        self.good += int((out.argmax(1) == y).sum())

    def __str__(self):
        return "%d tickets, %.2f right" % (self.n, self.good / max(1, self.n))


def main():
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        spool(folder, 4, 12)
        loader = DataLoader(TicketStream(folder, 512), batch_size=8, num_workers=2)
        model = nn.Linear(512, 4)
        opt = torch.optim.Adam(model.parameters(), lr=0.01)
        for sweep in range(40):
            meter = Meter()
            for x, y in loader:
                out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                meter.update(out, y)
            if sweep % 10 == 9:
                print("sweep", sweep + 1, meter, flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
