# cause: worker-segfault
"""Classify gene families (selection / drift) from statistics of their phylogenetic trees."""
import argparse
import random
import sys
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

sys.setrecursionlimit(10 ** 6)  # some families are large


class Node:
    __slots__ = ("length", "children")

    def __init__(self, length):
        self.length = length
        self.children = []


def grow_tree(n_leaves, skew, rng):
    """Split leaves until there are n of them; skew 1.0 always splits the newest."""
    root = Node(0.0)
    leaves = [root]
    while len(leaves) < n_leaves:
        k = len(leaves) - 1 if rng.random() < skew else rng.randrange(len(leaves))
        node = leaves[k]
        node.children = [Node(rng.expovariate(1.0)), Node(rng.expovariate(1.0))]
        leaves[k] = node.children[0]
        leaves.append(node.children[1])
    return root


class TreeStats:
    """Recursive summaries of a rooted tree."""

    def __call__(self, root):
        n = self.leaves(root)
        h = self.height(root)
        return torch.tensor([n ** 0.5, h, self.total(root) / n, self.cherries(root) / n, self.levels(root) / (n ** 0.5)])

    def leaves(self, node):
        return sum(self.leaves(c) for c in node.children) if node.children else 1

    def height(self, node):
        return node.length + max((self.height(c) for c in node.children), default=0.0)

    def levels(self, node):
        return 1 + max((self.levels(c) for c in node.children), default=0)

    def total(self, node):
        return node.length + sum(self.total(c) for c in node.children)

    def cherries(self, node):
        if len(node.children) == 2 and not any(c.children for c in node.children):
            return 1
        return sum(self.cherries(c) for c in node.children)


class GeneFamilies(Dataset):
    def __init__(self, families, sizes, skew, stats):
        self.families = families      # (seed, label)
        self.sizes = sizes
        self.skew = skew
        self.stats = stats

    def __len__(self):
        return len(self.families)

    def __getitem__(self, i):
        seed, label = self.families[i]
        rng = random.Random(seed)
        tree = grow_tree(self.sizes[i], self.skew[i], rng)
        return self.stats(tree), label


def build_catalogue(n, seed):
    rng = random.Random(seed)
    families, sizes, skew = [], [], []
    for k in range(n):
        families.append((seed * 100_003 + k, k % 2))
        sizes.append(int(rng.lognormvariate(4.2, 0.5)))
        skew.append(0.8 if k % 2 else 0.2)
    # retrotransposon superfamily of all species: one copy after the other
    sizes[n // 8], skew[n // 8] = 90_000, 1.0
    return families, sizes, skew


def build_model(hidden):
    return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
                         nn.Linear(hidden, 2))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--families", type=int, default=1600)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--hidden", type=int, default=64)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("-j", "--jobs", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(17)

    fam, sizes, skew = build_catalogue(a.families, 17)
    cut = int(0.85 * a.families)
    stats = TreeStats()
    train = GeneFamilies(fam[:cut], sizes[:cut], skew[:cut], stats)
    test = GeneFamilies(fam[cut:], sizes[cut:], skew[cut:], stats)
    train_dl = DataLoader(train, a.batch, shuffle=True, num_workers=a.jobs, persistent_workers=True)
    test_dl = DataLoader(test, a.batch, num_workers=a.jobs, persistent_workers=True)
    net = build_model(a.hidden)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(a.epochs):
        net.train()
        t0 = time.time()
        for step, (x, y) in enumerate(train_dl):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step}/{len(train_dl)} loss {loss.item():.3f}", flush=True)
        net.eval()
        with torch.no_grad():
            ok = sum((net(x).argmax(1) == y).sum().item() for x, y in test_dl)
        print(f"epoch {epoch} test accuracy {ok / len(test):.3f} ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
