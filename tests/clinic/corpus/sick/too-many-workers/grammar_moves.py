# cause: too-many-workers
"""Predict the next command of a text adventure from the room description (parser features)."""
import argparse
import functools
import itertools
import os
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

VERBS = ["take", "drop", "open", "close", "push", "pull", "eat", "read", "light", "climb", "enter", "leave"]
NOUNS = [f"{a}{b}" for a in ("lamp", "door", "box", "key", "rope", "coin", "leaf", "cup", "bell", "map") for b in ("", "s", "let")]
PREPS = ["with", "into", "under", "behind", "from"]
DIM = 2048


class Parser:
    """All sentence shapes the game knows, expanded once and indexed by their words."""

    def __init__(self, shapes):
        self.index = {}
        for n, (verb, noun, prep, other) in enumerate(itertools.product(VERBS, NOUNS, PREPS, NOUNS)):
            if n >= shapes:
                break
            key = " ".join(sorted((verb, noun, prep, other)))
            for ending in (r"s\b", r"let\b", r"(s|let)\b"):
                text = re.sub(ending, "", key)
                self.index[text] = self.index.get(text, 0) + sum(map(ord, text)) % 7

    def score(self, words):
        hits = [self.index.get(" ".join(sorted(c)), 0) for c in itertools.combinations(words[:11], 4)]
        return [sum(hits[k::16]) for k in range(16)]


class Rooms(Dataset):
    def __init__(self, rooms, shapes):
        self.rooms, self.shapes = rooms, shapes

    @functools.cached_property
    def parser(self):
        return Parser(self.shapes)

    def __len__(self):
        return self.rooms

    def __getitem__(self, i):
        r = random.Random(i)
        verb = r.randrange(len(VERBS))
        words = [VERBS[verb]] + r.sample(NOUNS, 8) + r.sample(PREPS, 2)
        bag = torch.zeros(DIM)
        for a, b in zip(words, words[1:]):
            bag[(sum(map(ord, a)) * 31 + sum(map(ord, b))) % (DIM - 16)] += 1
        bag[-16:] = torch.tensor(self.parser.score(words)) / 10
        return bag, verb


def cpu_workers(per_core):
    return min(8, (os.cpu_count() or 1) * per_core)


def accuracy(net, loader):
    good = n = 0
    with torch.no_grad():
        for x, y in loader:
            good, n = good + (net(x).argmax(1) == y).sum().item(), n + len(y)
    return good / n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rooms", type=int, default=800)
    p.add_argument("--shapes", type=int, default=50_000)
    p.add_argument("--batch", type=int, default=20)
    p.add_argument("--per-core", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Rooms(a.rooms, a.shapes)
    train, held = random_split(data, [0.9, 0.1])
    batches = DataLoader(train, a.batch, shuffle=True, num_workers=cpu_workers(a.per_core), persistent_workers=True)
    checks = DataLoader(held, a.batch)
    net = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, len(VERBS)))
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    began = time.time()
    for epoch in range(a.epochs):
        for x, y in batches:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f} {time.time() - began:.1f}s", flush=True)
    print(f"held-out {accuracy(net, checks):.2f} after {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
