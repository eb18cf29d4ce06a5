"""Anomaly scoring of web server logs, streamed through a parser and a shuffle buffer."""
import argparse
import pathlib
import random
import tempfile
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOCAB, LENGTH = 4096, 160


def write_logs(folder, shards, lines):
    rnd = random.Random(4)
    for s in range(shards):
        with open(folder / f"access-{s:03d}.log", "w") as out:
            for n in range(lines):
                odd = rnd.random() < 0.3
                path = "/".join(rnd.choice(["api", "img", "user", "cart", "v2", "search"]) for _ in range(24))
                query = "&".join(f"k{rnd.randrange(30)}={rnd.randrange(1000)}" for _ in range(40))
                agent = "sqlmap/1.2" if odd and rnd.random() < 0.8 else "Mozilla/5.0"
                out.write(f"{int(odd)}\t10.0.{s}.{n % 256} GET /{path}?{query} {rnd.choice([200, 304, 404])} {agent}\n")


class LogLines(IterableDataset):
    def __init__(self, folder):
        self.files = sorted(pathlib.Path(folder).glob("access-*.log"))

    def mine(self):
        info = get_worker_info()
        return self.files if info is None else self.files[info.id::info.num_workers]

    def __iter__(self):
        for path in self.mine():
            with open(path) as handle:
                yield from handle


class Parsed(IterableDataset):
    def __init__(self, source):
        self.source = source

    def encode(self, text):
        pieces = [text[k:k + 5] for k in range(0, len(text) - 4)]
        ids = [zlib.crc32(p.encode()) % VOCAB for p in pieces]
        step = max(1, len(ids) // LENGTH)
        ids = ids[::step][:LENGTH]
        return torch.tensor(ids + [0] * (LENGTH - len(ids)))

    def __iter__(self):
        for line in self.source:
            label, text = line.rstrip("\n").split("\t", 1)
            yield self.encode(text), torch.tensor(float(label))


class ShuffleBuffer(IterableDataset):
    def __init__(self, source, size=128):
        self.source, self.size = source, size

    def __iter__(self):
        held = []
        for item in self.source:
            held.append(item)
            if len(held) >= self.size:
                k = random.randrange(len(held))
                held[k], held[-1] = held[-1], held[k]
                yield held.pop()
        random.shuffle(held)
        yield from held


class Scorer(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True, dropout=0.0)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.out(self.enc(self.emb(ids)).mean(1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        write_logs(pathlib.Path(tmp), shards=8, lines=180)
        loader = DataLoader(ShuffleBuffer(Parsed(LogLines(tmp))), batch_size=a.batch_size, num_workers=a.workers,
                            persistent_workers=a.workers > 0)
        model = Scorer()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for epoch in range(a.epochs):
            began, waited, seen, total = time.time(), 0.0, 0, 0.0
            mark = time.time()
            for ids, label in loader:
                waited += time.time() - mark
                loss = nn.functional.binary_cross_entropy_with_logits(model(ids), label)
                opt.zero_grad()
                loss.backward()
                opt.step()
                seen += len(label)
                total += loss.item() * len(label)
                mark = time.time()
            print(f"epoch {epoch} lines {seen} loss {total / seen:.4f} {time.time() - began:.1f}s "
                  f"(data {waited:.2f}s)", flush=True)


if __name__ == "__main__":
    main()
