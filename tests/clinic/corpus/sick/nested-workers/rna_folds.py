# cause: nested-workers
"""Unpaired-base prediction for RNA.  Many candidate foldings of a strand are scored and averaged into the features."""
import argparse
import concurrent.futures
import functools
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

PAIRS = {("A", "U"), ("U", "A"), ("G", "C"), ("C", "G"), ("G", "U"), ("U", "G")}


def fold(strand, seed):
    """One greedy folding with random tie breaks."""
    rng = np.random.default_rng(seed)
    n = len(strand)
    free, bonded = np.ones(n, dtype=bool), np.zeros(n, dtype=np.float32)
    for i in rng.permutation(n):
        if not free[i]:
            continue
        options = [j for j in range(n) if free[j] and abs(i - j) > 3 and (strand[i], strand[j]) in PAIRS]
        if options and rng.random() < 0.8:
            j = options[int(rng.integers(len(options)))]
            free[i] = free[j] = False
            bonded[i] = bonded[j] = 1
    return bonded


class Ensemble:
    """Average over foldings; strands beyond a length are shared out over processes."""

    def __init__(self, members, split_above, jobs):
        self.members, self.split_above, self.jobs = members, split_above, jobs

    def __call__(self, strand):
        one = functools.partial(fold, strand)
        if len(strand) <= self.split_above:
            found = list(map(one, range(self.members)))
        else:
            with concurrent.futures.ProcessPoolExecutor(self.jobs) as pool:
                found = list(pool.map(one, range(self.members)))
        return np.mean(found, axis=0)


class Strands(Dataset):
    def __init__(self, path, ensemble, pad):
        with open(path) as f:
            self.strands = [line.strip() for line in f if not line.startswith(">")]
        self.ensemble, self.pad = ensemble, pad

    def __len__(self):
        return len(self.strands)

    def weights(self):
        return [1.0 + s.count("G") / len(s) for s in self.strands]

    def __getitem__(self, k):
        s = self.strands[k]
        x = np.zeros((5, self.pad), dtype=np.float32)
        for i, c in enumerate(s):
            x["AUGC".index(c), i] = 1
        x[4, :len(s)] = self.ensemble(s)
        y = np.full(self.pad, -1, dtype=np.float32)
        y[:len(s)] = [float(c in "AU") for c in s]
        return torch.from_numpy(x), torch.from_numpy(y)


def write_fasta(path, n):
    rng = np.random.default_rng(19)
    with open(path, "w") as f:
        for k in range(n):
            length = int(rng.integers(20, 40)) if k % 29 else 90
            f.write(f">strand{k}\n" + "".join(rng.choice(list("AUGC"), size=length)) + "\n")


def masked_bce(logits, y):
    keep = y >= 0
    return nn.functional.binary_cross_entropy_with_logits(logits[keep], y[keep])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--members", type=int, default=6)
    ap.add_argument("--split-above", type=int, default=64)
    ap.add_argument("--jobs", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="rna_") as folder:
        path = os.path.join(folder, "strands.fa")
        write_fasta(path, 240)
        data = Strands(path, Ensemble(args.members, args.split_above, args.jobs), pad=96)
        data[0]     # fail early if the file is broken
        sampler = WeightedRandomSampler(data.weights(), num_samples=len(data))
        loader = DataLoader(data, batch_size=12, sampler=sampler, num_workers=2, persistent_workers=True)
        net = nn.Sequential(nn.Conv1d(5, 24, 7, padding=3), nn.ReLU(), nn.Conv1d(24, 1, 7, padding=3), nn.Flatten())
        opt = torch.optim.Adam(net.parameters(), lr=3e-3)
        for epoch in range(2):
            for step, (x, y) in enumerate(loader):
                loss = masked_bce(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if step % 5 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
