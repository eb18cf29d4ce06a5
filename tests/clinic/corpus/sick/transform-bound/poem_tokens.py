# cause: transform-bound
# also: not-fed-fast-enough
"""Character-pair language model; the merges are applied while loading."""
import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class PairMerger:
    def __init__(self, merges):
        self.rank = {m: k for k, m in enumerate(merges)}
        self.ids = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz ")}
        for a, b in merges:
            self.ids.setdefault(a + b, len(self.ids))

    def __call__(self, text):
        parts = list(text)
        while True:
            pairs = {(a, b) for a, b in zip(parts, parts[1:])}
            best = min(pairs, key=lambda p: self.rank.get(p, 1 << 30), default=None)
            if best is None or best not in self.rank:
                return [self.ids[p] for p in parts]
            out, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and (parts[i], parts[i + 1]) == best:
                    out.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    out.append(parts[i])
                    i += 1
            parts = out


class Poems(Dataset):
    def __init__(self, n, length, seq):
        self.n, self.length, self.seq = n, length, seq
        letters = "etaoinshr "
        self.tok = PairMerger([(a, b) for a in letters for b in letters][:70])

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = random.Random(i)
        text = "".join(rng.choices("etaoinshrdlu ", k=self.length))
        ids = self.tok(text)[:self.seq + 1]
        ids += [0] * (self.seq + 1 - len(ids))
        t = torch.tensor(ids)
        return t[:-1], t[1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--poems", type=int, default=300)
    p.add_argument("--length", type=int, default=900)
    p.add_argument("--seq", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(1)
    data = Poems(a.poems, a.length, a.seq)
    loader = DataLoader(data, batch_size=12, shuffle=True, num_workers=a.workers, drop_last=True)
    vocab = len(data.tok.ids)
    model = nn.Sequential(nn.Embedding(vocab, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, vocab))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    start = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            print("step %d loss %.3f %.1f poems/s" % (step + 1, loss.item(), 12 * (step + 1) / (time.time() - start)), flush=True)


if __name__ == "__main__":
    main()
