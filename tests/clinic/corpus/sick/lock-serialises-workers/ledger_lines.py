# cause: lock-serialises-workers
"""Account prediction for invoice lines. Lines live in an append-only ledger."""
import fcntl
import json
import os
import tempfile
import time
import zlib
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

WORDS = "paper toner rent water power travel hotel train coffee desk lamp licence support audit repair cable".split()


@dataclass
class Options:
    lines: int = 560
    batch: int = 8
    workers: int = 4
    buckets: int = 512
    accounts: int = 6
    epochs: int = 1


def write_ledger(path, o):
    g = torch.Generator().manual_seed(1)
    positions = []
    with open(path, "wb") as f:
        for _ in range(o.lines):
            picks = torch.randint(0, len(WORDS), (12,), generator=g).tolist()
            body = json.dumps({"text": [WORDS[p] for p in picks], "account": picks[0] % o.accounts}).encode()
            packed = zlib.compress(body)
            positions.append((f.tell(), len(packed)))
            f.write(packed)
    return positions


class Ledger:
    def __init__(self, path, positions):
        self.path, self.positions = path, positions

    def __enter__(self):
        self.guard = open(self.path + ".lck", "w")
        fcntl.flock(self.guard, fcntl.LOCK_EX)
        return self

    def __exit__(self, *exc):
        self.guard.close()

    def line(self, i):
        at, size = self.positions[i]
        fd = os.open(self.path, os.O_RDONLY)
        try:
            time.sleep(0.011)  # mounted from another office
            return json.loads(zlib.decompress(os.pread(fd, size, at)))
        finally:
            os.close(fd)


class InvoiceLines(Dataset):
    def __init__(self, path, positions, buckets):
        self.path, self.positions, self.buckets = path, positions, buckets

    def __len__(self):
        return len(self.positions)

    def vector(self, words):
        v = torch.zeros(self.buckets)
        for a, b in zip(words, words[1:] + [""]):
            v[zlib.crc32(a.encode()) % self.buckets] += 1
            v[zlib.crc32((a + b).encode()) % self.buckets] += 0.5
        return v

    def __getitem__(self, i):
        with Ledger(self.path, self.positions) as ledger:
            record = ledger.line(i)
        return self.vector(record["text"]), record["account"]


def main(o):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger.bin")
        data = InvoiceLines(path, write_ledger(path, o), o.buckets)
        cut = int(0.9 * len(data))
        train = DataLoader(Subset(data, range(cut)), o.batch, shuffle=True, num_workers=o.workers)
        valid = DataLoader(Subset(data, range(cut, len(data))), o.batch, num_workers=o.workers)
        net = nn.Linear(o.buckets, o.accounts)
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        for epoch in range(o.epochs):
            t0 = time.time()
            for x, y in train:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            t1 = time.time()
            with torch.no_grad():
                hits = sum((net(x).argmax(1) == y).sum().item() for x, y in valid)
            print(f"epoch {epoch} loss {loss.item():.3f} right {hits}/{len(data) - cut} "
                  f"train {t1 - t0:.1f}s valid {time.time() - t1:.1f}s", flush=True)


if __name__ == "__main__":
    main(Options())
