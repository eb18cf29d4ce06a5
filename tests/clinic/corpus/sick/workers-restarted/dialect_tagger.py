# cause: workers-restarted
# also: slow-worker-start
"""Dialect identification on short utterances with a phonetic lexicon; small corpus, many epochs."""
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, get_worker_info

LETTERS = "abcdefghijklmnoprstuvz"


class Lexicon:
    """Maps a word to phone ids; rewriting rules are expanded when it is created."""

    def __init__(self, words=200_000):
        rnd = random.Random(1)
        self.table = {}
        for _ in range(words):
            w = "".join(rnd.choices(LETTERS, k=rnd.randint(3, 8)))
            for old, new in (("ph", "f"), ("th", "t"), ("sch", "s"), ("ck", "k")):
                w = w.replace(old, new)
            self.table[w] = spell(w)

    def phones(self, word):
        return self.table.get(word) or spell(word)


def spell(word):
    return tuple(1 + hash_pair(a, b) for a, b in zip(word, word[1:] + "_"))


def hash_pair(a, b):
    h = 7
    for c in (a, b):
        h = (h * 31 + ord(c)) % 251
    return h


class Utterances(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.items = []
        for _ in range(n):
            label = rnd.randrange(3)
            pool = LETTERS[label * 4 : label * 4 + 14]
            self.items.append((["".join(rnd.choices(pool, k=rnd.randint(3, 8))) for _ in range(25)], label))
        self.lexicon = None

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        words, label = self.items[i]
        lookup = self.lexicon.phones if self.lexicon else spell
        phones = [p for w in words for p in lookup(w)]
        best = sorted(phones, key=lambda p: -sum(1 for q in phones if abs(p - q) < 6))
        return torch.tensor(phones), torch.tensor(best[:16]), label


def attach_lexicon(worker_id):
    get_worker_info().dataset.lexicon = Lexicon()


def collate(batch):
    seqs, best, labels = zip(*batch)
    return pad_sequence(seqs, batch_first=True), torch.stack(best), torch.tensor(labels)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(256, 16, padding_idx=0)
        self.fc = nn.Linear(32, 3)

    def forward(self, seq, best):
        return self.fc(torch.cat([self.emb(seq).mean(1), self.emb(best).mean(1)], 1))


def make_loader(n, seed, shuffle):
    return DataLoader(Utterances(n, seed), batch_size=8, shuffle=shuffle, num_workers=2, collate_fn=collate,
                      worker_init_fn=attach_lexicon)


def main(epochs=6):
    torch.set_num_threads(1)
    loader = make_loader(160, 0, True)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        loss_sum = 0.0
        for seq, best, y in loader:
            loss = nn.functional.cross_entropy(model(seq, best), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            loss_sum += loss.item()
        print(f"epoch {epoch:2d} loss {loss_sum / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
