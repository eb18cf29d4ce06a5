# cause: workers-restarted
"""Triage of clinical notes: byte-pair tokens, bag-of-embeddings classifier, many short rounds of active learning."""
import argparse
import collections
import functools
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

STEMS = "card neur pulm hepat ren derm gastr haem osteo psych ortho onc".split()
SUFFIXES = "itis osis algia ectomy opathy ology emia plasty gram scopy".split()


def write_note(rng):
    topic = rng.randrange(len(STEMS))
    words = []
    for _ in range(rng.randint(14, 26)):
        stem = STEMS[topic] if rng.random() < 0.3 else rng.choice(STEMS)
        words.append(stem + rng.choice("oaei") + rng.choice(STEMS) + rng.choice(SUFFIXES))
    return " ".join(words), topic % 4


class BytePairs:
    """A byte-pair vocabulary learnt from a reference corpus."""

    def __init__(self, merges=30, seed=99):
        rng = random.Random(seed)
        counts = collections.Counter()
        for _ in range(1200):
            counts.update(write_note(rng)[0].split())
        words = {tuple(w): n for w, n in counts.items()}
        self.ranks = {}
        for rank in range(merges):
            pairs = collections.Counter()
            for symbols, n in words.items():
                for pair in zip(symbols, symbols[1:]):
                    pairs[pair] += n
            best = max(pairs, key=lambda p: (pairs[p], p))
            self.ranks[best] = rank
            words = {self.join(s, best): n for s, n in words.items()}
        pieces = {p for s in words for p in s} | {a + b for a, b in self.ranks} | set("abcdefghijklmnopqrstuvwxyz")
        self.ids = {p: i + 1 for i, p in enumerate(sorted(pieces))}

    @staticmethod
    def join(symbols, pair):
        out, i = [], 0
        while i < len(symbols):
            if symbols[i : i + 2] == pair:
                out.append(pair[0] + pair[1])
                i += 2
            else:
                out.append(symbols[i])
                i += 1
        return tuple(out)

    def encode(self, text):
        out = []
        for word in text.split():
            symbols = tuple(word)
            while True:
                known = [p for p in zip(symbols, symbols[1:]) if p in self.ranks]
                if not known:
                    break
                symbols = self.join(symbols, min(known, key=self.ranks.get))
            out.extend(self.ids[s] for s in symbols)
        return out


class Notes(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        rows = [write_note(rng) for _ in range(size)]
        self.text = tuple(t for t, _ in rows)
        self.label = tuple(y for _, y in rows)

    @functools.cached_property
    def tokens(self):
        return BytePairs()

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return torch.tensor(self.tokens.encode(self.text[i])), self.label[i]


def pad(batch):
    ids, labels = zip(*batch)
    return pad_sequence(ids, batch_first=True), torch.tensor(labels)


class Bag(nn.Module):
    def __init__(self, vocab=512, width=64):
        super().__init__()
        self.table = nn.Embedding(vocab, width, padding_idx=0)
        self.out = nn.Linear(width, 4)

    def forward(self, ids):
        mask = (ids > 0).unsqueeze(-1)
        return self.out((self.table(ids) * mask).sum(1) / mask.sum(1))


def train_round(model, loader, optimiser):
    total = correct = 0
    for ids, labels in loader:
        scores = model(ids)
        loss = nn.functional.cross_entropy(scores, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        correct += (scores.argmax(1) == labels).sum().item()
        total += len(labels)
    return correct / total


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pool", type=int, default=800)
    parser.add_argument("--num-workers", type=int, default=2)
    opt = parser.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Notes(opt.pool, 1), batch_size=16, shuffle=True, collate_fn=pad, num_workers=opt.num_workers)
    model = Bag()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for number in range(opt.rounds):
        start = time.time()
        accuracy = train_round(model, loader, optimiser)
        print(f"round {number} accuracy {accuracy:.3f} seconds {time.time() - start:.2f}", flush=True)


if __name__ == "__main__":
    main()
