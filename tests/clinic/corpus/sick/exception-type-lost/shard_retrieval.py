# cause: exception-type-lost
# also: dataset-raises, bad-sample
"""Query/passage retrieval from compressed shards; passages that cannot be read are counted and left out."""
import argparse
import json
import os
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCAB, LENGTH = 2000, 24


class PassageUnreadable(Exception):
    def __init__(self, shard, row, reason):
        super().__init__(f"shard {shard} row {row}: {reason}")
        self.shard, self.row, self.reason = shard, row, reason


class ShardStore:
    def __init__(self, root):
        self.root = root
        with open(os.path.join(root, "index.json")) as f:
            self.index = json.load(f)

    def get(self, k):
        shard, row, start, size = self.index[k]
        with open(os.path.join(self.root, f"{shard}.bin"), "rb") as f:
            f.seek(start)
            blob = f.read(size)
        try:
            return np.frombuffer(zlib.decompress(blob), dtype=np.int64)
        except zlib.error as e:
            raise PassageUnreadable(shard, row, e) from e


class Triples(Dataset):
    def __init__(self, store):
        self.store = store

    def __len__(self):
        return len(self.store.index)

    def __getitem__(self, i):
        tokens = self.store.get(i)
        time.sleep(0.001)
        return torch.from_numpy(tokens[:8].copy()), torch.from_numpy(tokens[8:].copy())


def write_shards(root, shards, rows):
    rng = np.random.default_rng(1)
    index = []
    for s in range(shards):
        with open(os.path.join(root, f"{s}.bin"), "wb") as f:
            for r in range(rows):
                blob = zlib.compress(rng.integers(1, VOCAB, 8 + LENGTH).tobytes())
                if (s, r) in {(1, 33), (2, 80)}:
                    blob = blob[:10] + b"\0" * (len(blob) - 10)
                index.append((s, r, f.tell(), len(blob)))
                f.write(blob)
    with open(os.path.join(root, "index.json"), "w") as f:
        json.dump(index, f)


class BiEncoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.EmbeddingBag(VOCAB, width)
        self.proj = nn.Linear(width, width)

    def forward(self, q, p):
        return self.proj(self.embed(q)) @ self.embed(p).t()


def epoch(model, opt, loader):
    it, skipped, losses = iter(loader), 0, []
    while True:
        try:
            q, p = next(it)
        except StopIteration:
            return np.mean(losses), skipped
        except PassageUnreadable as e:
            skipped += 1
            print(f"left out: {e}", flush=True)
            continue
        loss = nn.functional.cross_entropy(model(q, p), torch.arange(len(q)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        write_shards(root, 4, 200)
        model = BiEncoder()
        opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
        loss, skipped = epoch(model, opt, DataLoader(Triples(ShardStore(root)), a.batch, num_workers=a.workers, shuffle=True))
        print(f"loss {loss:.4f}, {skipped} batches left out")


if __name__ == "__main__":
    main()
