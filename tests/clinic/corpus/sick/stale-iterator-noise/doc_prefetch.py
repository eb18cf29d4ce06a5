# cause: stale-iterator-noise
"""Document tagging with a small prefetcher; each round looks at part of the shuffled corpus."""
import argparse
import gc
import random
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Node:
    """Parse tree with links in both directions."""

    def __init__(self, word, parent=None):
        self.word, self.parent, self.children = word, parent, []
        if parent is not None:
            parent.children.append(self)

    def walk(self):
        yield self
        for c in self.children:
            yield from c.walk()


class Documents(Dataset):
    def __init__(self, n, width=256):
        r = random.Random(0)
        self.texts = [" ".join(f"w{int(r.paretovariate(0.6)) % 700}" for _ in range(500)) for _ in range(n)]
        self.width = width
        self.parsed = 0

    def __len__(self):
        return len(self.texts)

    def parse(self, text):
        root = node = Node("ROOT")
        for k, w in enumerate(text.split()):
            node = Node(w, root if k % 7 == 0 else node)
        return root

    def __getitem__(self, i):
        tree = self.parse(self.texts[i])
        pairs = Counter((n.parent.word, n.word) for n in tree.walk() if n.parent)
        x = torch.zeros(self.width)
        for (a, b), c in pairs.items():
            x[sum(map(ord, a + b)) % self.width] += c
        self.parsed += 1
        if self.parsed % 24 == 0:
            gc.collect()  # trees are cyclic, keep the footprint low
        return x.log1p(), i % 5


class Prefetcher:
    """Holds the next batch while the current one is used."""

    def __init__(self, loader, on_batch=None):
        self.stream = iter(loader)
        self.on_batch = on_batch or self.ignore
        self.upcoming = next(self.stream)

    def ignore(self, batch):
        pass

    def take(self):
        batch, self.upcoming = self.upcoming, next(self.stream)
        self.on_batch(batch)
        return batch


def train_round(model, opt, loader, batches):
    feed = Prefetcher(loader)
    total = 0.0
    for _ in range(batches):
        x, y = feed.take()
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / batches


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--batches", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Documents(180), batch_size=12, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for k in range(args.rounds):
        t = time.time()
        print(f"round {k} loss {train_round(model, opt, loader, args.batches):.3f} {time.time() - t:.1f}s", flush=True)


if __name__ == "__main__":
    main()
