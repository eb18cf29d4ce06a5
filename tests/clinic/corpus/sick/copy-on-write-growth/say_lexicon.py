# cause: copy-on-write-growth
"""Grapheme-to-phoneme warm-up: predict vowel counts of sentences with a pronunciation lexicon."""
import dataclasses
import functools
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PHONES = [f"{c}{v}{n}" for c in "PTKBDGMNSZ" for v in "AEIOU" for n in (0, 1)]
PHONE_ID = {p: i + 1 for i, p in enumerate(PHONES)}
VOWELS = torch.tensor([0] + [int(p[1] in "AEI") for p in PHONES])


@dataclasses.dataclass
class Config:
    entries: int = 220_000
    sentences: int = 5000
    words: int = 120
    batch: int = 16
    workers: int = 2
    lr: float = 2e-3
    seed: int = 5


@dataclasses.dataclass
class Entry:
    phones: list
    stress: tuple


def spell(n):
    letters = []
    for _ in range(7):
        n, k = divmod(n, 26)
        letters.append(chr(97 + k))
    return "".join(letters)


def build_lexicon(cfg):
    lexicon = {}
    for n in range(cfg.entries):
        k = n * 37 % 90
        lexicon[spell(n * 97 + 11)] = Entry(PHONES[k:k + 6], (n / cfg.entries, k / 90))
    return lexicon


class Sentences(Dataset):
    """Lessons in dictionary order: each sentence practises neighbouring words. Spelled on the fly, with word dropout."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(cfg.seed)
        near = torch.randint(0, cfg.entries // 20, (cfg.sentences, cfg.words), generator=g)
        self.ids = near + torch.linspace(0, 0.95 * cfg.entries, cfg.sentences).long()[:, None]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        keep = torch.rand(self.ids.shape[1]) > 0.05
        return [spell(n * 97 + 11) for n in self.ids[i][keep].tolist()]


def pronounce(batch, lexicon, fallback):
    rows, targets = [], []
    for words in batch:
        phones, weight = [], 0.0
        for w in words:
            entry = lexicon.get(w, fallback)
            phones.extend(PHONE_ID[p] for p in entry.phones)
            weight += entry.stress[0] - entry.stress[1]
        row = torch.tensor(phones)
        rows.append(row)
        targets.append(VOWELS[row].float().mean() + 0.01 * weight / len(words))
    return pad_sequence(rows, batch_first=True), torch.stack(targets)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(len(PHONES) + 1, 16, padding_idx=0)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.embed(x))[:, 0]


def train(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    collate = functools.partial(pronounce, lexicon=build_lexicon(cfg), fallback=Entry(["PA0"], (0.0, 0.0)))
    loader = DataLoader(Sentences(cfg), cfg.batch, collate_fn=collate, num_workers=cfg.workers)
    net = Reader()
    opt = torch.optim.Adam(net.parameters(), cfg.lr)
    began = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(f"{step:4d} mse {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    print(f"{cfg.sentences / (time.time() - began):.0f} sentences/s")


if __name__ == "__main__":
    train(Config())
