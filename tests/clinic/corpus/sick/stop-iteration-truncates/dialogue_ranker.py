# cause: stop-iteration-truncates
"""Response ranking: every context gets its true reply and one reply from another topic of the same length."""
import argparse
import itertools
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Dialogues:
    def __init__(self, n, topics=9, vocab=600, seed=4):
        rng = np.random.default_rng(seed)
        self.topic = rng.integers(0, topics, n)
        self.context = [rng.integers(1, vocab, int(rng.integers(6, 15))) for _ in range(n)]
        self.reply = [rng.integers(1, vocab, int(k)) for k in rng.choice([4, 5, 6, 7], n)]
        self.reply[(2 * n) // 5] = rng.integers(1, vocab, 11)

    def __len__(self):
        return len(self.topic)


class Ranking(Dataset):
    def __init__(self, dialogues, pad=16):
        self.d, self.pad = dialogues, pad

    def __len__(self):
        return len(self.d)

    def _negative(self, i):
        n = len(self.d)
        others = itertools.chain(range(i + 1, n), range(i))
        return next(j for j in others
                    if self.d.topic[j] != self.d.topic[i] and len(self.d.reply[j]) == len(self.d.reply[i]))

    def _fit(self, tokens):
        out = np.zeros(self.pad, np.int64)
        out[:len(tokens)] = tokens
        return torch.from_numpy(out)

    def __getitem__(self, i):
        time.sleep(0.002)
        j = self._negative(i)
        return self._fit(self.d.context[i]), self._fit(self.d.reply[i]), self._fit(self.d.reply[j])


class Ranker(nn.Module):
    def __init__(self, vocab=600, width=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, width, padding_idx=0)
        self.ctx, self.rep = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, c, r):
        return (self.ctx(self.emb(c).mean(1)) * self.rep(self.emb(r).mean(1))).sum(1)


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n):
        self.total += value * n
        self.count += n

    def __str__(self):
        return f"{self.total / max(self.count, 1):.4f}"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dialogues", type=int, default=1500)
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    data = Ranking(Dialogues(a.dialogues))
    loader = DataLoader(data, a.batch, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
    model = Ranker()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(a.epochs):
        meter = Meter()
        for c, good, bad in loader:
            loss = nn.functional.softplus(model(c, bad) - model(c, good)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.add(loss.item(), len(c))
        print(f"epoch {epoch} loss {meter} on {meter.count} dialogues", flush=True)


if __name__ == "__main__":
    main()
