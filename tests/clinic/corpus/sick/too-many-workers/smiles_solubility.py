# cause: too-many-workers
# also: slow-worker-start
"""Solubility regression from SMILES strings with a learned pair-merge vocabulary."""
import collections
import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class Config:
    molecules: int = 1600
    merges: int = 60
    batch_size: int = 32
    workers: int = 20
    epochs: int = 2
    lr: float = 2e-3
    max_len: int = 64
    seed: int = 7


FRAGMENTS = ["C", "CC", "c1ccccc1", "C(=O)O", "N", "O", "Cl", "Br", "S(=O)(=O)", "C#N", "n1ccnc1", "OC", "CN(C)C", "F"]


def make_corpus(cfg):
    rnd = random.Random(cfg.seed)
    rows = []
    for _ in range(cfg.molecules):
        parts = [rnd.choice(FRAGMENTS) for _ in range(rnd.randint(6, 14))]
        target = sum(p.count("O") + p.count("N") for p in parts) / 6 - 0.15 * len(parts)
        rows.append(("".join(parts), target))
    return rows


class PairMergeTokenizer:
    """Byte-pair style tokenizer; fitted on first use so that the object itself stays light."""

    def __init__(self, corpus, merges):
        self.corpus = corpus
        self.merges = merges
        self.ranks = None

    def _fit(self):
        words = [list(s) for s in self.corpus[:600]]
        self.ranks = {}
        for rank in range(self.merges):
            counts = collections.Counter()
            for w in words:
                counts.update(zip(w, w[1:]))
            if not counts:
                break
            best = counts.most_common(1)[0][0]
            self.ranks[best] = rank
            words = [self._merge(w, best) for w in words]

    @staticmethod
    def _merge(word, pair):
        out, i = [], 0
        while i < len(word):
            if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
                out.append(word[i] + word[i + 1])
                i += 2
            else:
                out.append(word[i])
                i += 1
        return out

    def encode(self, text):
        if self.ranks is None:
            self._fit()
        word = list(text)
        while True:
            ranked = [(self.ranks.get(p, 1 << 30), p) for p in zip(word, word[1:])]
            if not ranked or min(ranked)[0] == 1 << 30:
                break
            word = self._merge(word, min(ranked)[1])
        return [sum(map(ord, t)) * 31 % 509 + 1 for t in word]


class SolubilityData(Dataset):
    def __init__(self, rows, cfg):
        self.rows = rows
        self.cfg = cfg
        self.tok = PairMergeTokenizer([r[0] for r in rows], cfg.merges)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        smiles, y = self.rows[i]
        ids = self.tok.encode(smiles)[: self.cfg.max_len]
        x = torch.zeros(self.cfg.max_len, dtype=torch.long)
        x[: len(ids)] = torch.tensor(ids)
        return x, torch.tensor(y, dtype=torch.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(512, 48, padding_idx=0)
        self.rnn = nn.GRU(48, 64, batch_first=True)
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0].mean(1)).squeeze(1)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    data = SolubilityData(make_corpus(cfg), cfg)
    train, held = random_split(data, [len(data) - 200, 200])
    loader = DataLoader(train, cfg.batch_size, shuffle=True, num_workers=cfg.workers, persistent_workers=True)
    test = DataLoader(held, 100)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
        with torch.no_grad():
            mae = sum((model(x) - y).abs().sum().item() for x, y in test) / len(held)
        print(f"epoch {epoch}: mse {total / len(train):.3f}  held-out mae {mae:.3f}")


if __name__ == "__main__":
    main()
