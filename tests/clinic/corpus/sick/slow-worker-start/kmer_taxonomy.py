# cause: slow-worker-start
# also: start-method-changed, workers-restarted
"""Taxonomic read classifier with a k-mer lookup table built from the reference genomes."""
import random
import time

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

K = 12


def reference(genomes, length, seed):
    rnd = random.Random(seed)
    return ["".join(rnd.choices("ACGT", k=length)) for _ in range(genomes)]


def kmer_table(refs):
    table = {}
    for g, seq in enumerate(refs):
        for p in range(len(seq) - K + 1):
            table.setdefault(seq[p: p + K], []).append((g, p))
    return table


class Reads(Dataset):
    def __init__(self, refs, table, n, length=150, seed=0):
        self.refs, self.table, self.n, self.length, self.seed = refs, table, n, length, seed

    def __len__(self):
        return self.n

    def mutate(self, seq, rnd):
        return "".join(rnd.choice("ACGT") if rnd.random() < 0.04 else c for c in seq)

    def __getitem__(self, i):
        rnd = random.Random(self.seed * 7919 + i)
        g = rnd.randrange(len(self.refs))
        start = rnd.randrange(len(self.refs[g]) - self.length)
        read = self.mutate(self.refs[g][start: start + self.length], rnd)
        votes = torch.zeros(len(self.refs))
        for p in range(self.length - K + 1):
            for genome, _ in self.table.get(read[p: p + K], ()):
                votes[genome] += 1
        return votes, g


class Experiment:
    def __init__(self):
        refs = reference(12, 12000, 0)
        table = kmer_table(refs)
        ctx = mp.get_context("spawn")
        self.train = DataLoader(Reads(refs, table, 1500, seed=1), 50, shuffle=True, num_workers=2,
                                multiprocessing_context=ctx)
        self.test = DataLoader(Reads(refs, table, 300, seed=2), 50, num_workers=2, multiprocessing_context=ctx)
        self.model = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 12))
        self.opt = torch.optim.Adam(self.model.parameters(), 5e-3)

    def run(self, epochs):
        for epoch in range(epochs):
            t = time.time()
            for x, y in self.train:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            with torch.no_grad():
                acc = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.test) / 300
            print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f} {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    Experiment().run(2)
