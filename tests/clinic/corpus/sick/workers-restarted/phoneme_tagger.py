# cause: workers-restarted
"""Phoneme tagger for a low-resource language: a small corpus, many epochs."""
import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS = "abdefghijklmnoprstuvz"


class Lexicon:
    """Suffix statistics of the big word list, with back-off."""

    def __init__(self, words=120_000, seed=4):
        rnd = random.Random(seed)
        self.counts = {}
        for _ in range(words):
            w = "".join(rnd.choices(LETTERS, k=rnd.randint(4, 10)))
            for k in range(1, len(w)):
                s = w[-k:]
                self.counts[s] = self.counts.get(s, 0) + 1

    def score(self, word):
        return [self.counts.get(word[i:j], 0) for i in range(len(word)) for j in range(i + 1, len(word) + 1)]


class Utterances(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.words = [["".join(rnd.choices(LETTERS, k=9)) for _ in range(60)] for _ in range(n)]
        self._lexicon = None

    @property
    def lexicon(self):
        if self._lexicon is None:
            self._lexicon = Lexicon()
        return self._lexicon

    def __len__(self):
        return len(self.words)

    def features(self, word):
        s = self.lexicon.score(word)
        return [float(len(word)), float(sum(s)) ** 0.5, float(max(s)) ** 0.5] + [min(9.0, v) for v in s[:29]]

    def __getitem__(self, i):
        feats = torch.tensor([self.features(w) for w in self.words[i]])
        tags = torch.tensor([(ord(w[0]) + ord(w[-1])) % 7 for w in self.words[i]])
        return feats, tags


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(32, 48, batch_first=True, bidirectional=True)
        self.out = nn.Linear(96, 7)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


class TaggerModule:
    def __init__(self, args):
        self.args = args
        self.model = Tagger()
        self.opt = torch.optim.Adam(self.model.parameters(), 3e-3)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.97)
        self.corpus = {"train": Utterances(240, 0), "dev": Utterances(80, 1)}
        self.loaders = {k: self.dataloader(k) for k in self.corpus}

    def dataloader(self, part):
        return DataLoader(self.corpus[part], batch_size=20, shuffle=part == "train",
                          num_workers=self.args.workers, drop_last=part == "train")

    def sweep(self, part):
        train, total = part == "train", 0.0
        with torch.set_grad_enabled(train):
            for x, y in self.loaders[part]:
                loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
                if train:
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                total += loss.item()
        return total / len(self.loaders[part])

    def fit(self):
        best = float("inf")
        for epoch in range(self.args.epochs):
            train, dev = self.sweep("train"), self.sweep("dev")
            self.sched.step()
            best = min(best, dev)
            print(f"epoch {epoch:3d} train {train:.4f} dev {dev:.4f} best {best:.4f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=15)
    ap.add_argument("--workers", type=int, default=2)
    torch.manual_seed(0)
    TaggerModule(ap.parse_args()).fit()
