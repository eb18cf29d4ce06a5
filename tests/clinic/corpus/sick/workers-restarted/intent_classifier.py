# cause: workers-restarted
"""Intent classifier with frequent evaluation and early stopping."""
import json
import os
import random
import shutil
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = [c + v + d for c in "bdfgklmnprst" for v in "aeiou" for d in "lnrst"]


class Utterances(Dataset):
    def __init__(self, folder, ids, vocab):
        self.folder, self.ids, self.vocab = folder, ids, vocab

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        with open(os.path.join(self.folder, f"{self.ids[i]}.json")) as f:
            rec = json.load(f)
        time.sleep(0.003)                       # annotation service look-up
        counts = torch.zeros(len(self.vocab))
        for w in rec["text"].split():
            counts[self.vocab[w]] += 1
        return counts, rec["intent"]


def write(folder, n):
    rng = random.Random(4)
    for i in range(n):
        intent = rng.randrange(5)
        text = " ".join(WORDS[(rng.randrange(60) * 5 + intent * (rng.random() < 0.5)) % len(WORDS)] for _ in range(12))
        with open(os.path.join(folder, f"{i}.json"), "w") as f:
            json.dump({"text": text, "intent": intent}, f)


class EarlyStop:
    def __init__(self, patience):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


class Trainer:
    def __init__(self, train, valid, n_words, every=1):
        self.train_loader = DataLoader(train, 8, shuffle=True, num_workers=1, persistent_workers=True)
        self.valid_loader = DataLoader(valid, 8, num_workers=2)
        self.model = nn.Sequential(nn.Linear(n_words, 64), nn.ReLU(), nn.Linear(64, 5))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.every, self.step = every, 0

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        losses = [nn.functional.cross_entropy(self.model(x), y).item() for x, y in self.valid_loader]
        self.model.train()
        return sum(losses) / len(losses)

    def fit(self, epochs, stop):
        for epoch in range(epochs):
            for x, y in self.train_loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                if self.step % self.every == 0 and stop(self.evaluate()):
                    return
            print("epoch %d step %d best %.4f" % (epoch, self.step, stop.best), flush=True)


def main():
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        write(folder, 320)
        vocab = {w: i for i, w in enumerate(WORDS)}
        ids = list(range(320))
        Trainer(Utterances(folder, ids[:304], vocab), Utterances(folder, ids[304:], vocab), len(vocab)).fit(2, EarlyStop(60))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
