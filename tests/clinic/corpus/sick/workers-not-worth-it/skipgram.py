# cause: workers-not-worth-it
"""Skip-gram embeddings trained from (centre, context) pairs."""
import collections
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {"vocab": 2000, "tokens": 14000, "window": 2, "dim": 48, "negatives": 4,
          "loader": {"batch_size": 32, "shuffle": True, "num_workers": 2}, "lr": 0.01, "log_every": 300}


def zipf_text(vocab, n, seed=0):
    rng = random.Random(seed)
    weights = [1 / (r + 2) for r in range(vocab)]
    return rng.choices(range(vocab), weights, k=n)


class Pairs(Dataset):
    def __init__(self, tokens, window):
        centre, context = [], []
        for i, t in enumerate(tokens):
            for j in range(max(0, i - window), min(len(tokens), i + window + 1)):
                if j != i:
                    centre.append(t)
                    context.append(tokens[j])
        self.centre = torch.tensor(centre)
        self.context = torch.tensor(context)

    def __len__(self):
        return len(self.centre)

    def __getitem__(self, i):
        return self.centre[i], self.context[i]


class Negatives:
    """Collate function that adds negative words drawn by unigram frequency."""

    def __init__(self, tokens, vocab, k):
        counts = collections.Counter(tokens)
        self.probs = torch.tensor([counts[v] ** 0.75 for v in range(vocab)])
        self.k = k

    def __call__(self, pairs):
        c = torch.stack([p[0] for p in pairs])
        o = torch.stack([p[1] for p in pairs])
        neg = torch.multinomial(self.probs, len(pairs) * self.k, replacement=True).view(len(pairs), self.k)
        return c, o, neg


class SkipGram(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.inp, self.out = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)

    def forward(self, c, o, neg):
        v = self.inp(c)
        pos = (v * self.out(o)).sum(-1)
        bad = torch.einsum("bd,bkd->bk", v, self.out(neg))
        return -(nn.functional.logsigmoid(pos).mean() + nn.functional.logsigmoid(-bad).mean())


def main(cfg):
    torch.set_num_threads(1)
    tokens = zipf_text(cfg["vocab"], cfg["tokens"])
    data = Pairs(tokens, cfg["window"])
    loader = DataLoader(data, collate_fn=Negatives(tokens, cfg["vocab"], cfg["negatives"]), **cfg["loader"])
    model = SkipGram(cfg["vocab"], cfg["dim"])
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    for step, batch in enumerate(loader):
        loss = model(*batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % cfg["log_every"] == 0:
            sys.stdout.write("step %d loss %.3f\n" % (step, loss.item()))


if __name__ == "__main__":
    main(CONFIG)
