# cause: dataset-raises
"""Yield regression from reaction strings (SMILES-like), character vocabulary built from the training patents."""
import math
import random
import re

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

TOKEN = re.compile(r"Cl|Br|\[[^\]]+\]|.")
COMMON = ["C", "c", "N", "O", "(", ")", "1", "2", "=", "Cl", "Br", "F", "S"]
RARE = ["[nH]", "[O-]", "[N+]", "[Si]", "[B]"]


def fake_reactions(n, seed, rare):
    rnd = random.Random(seed)
    out = []
    for k in range(n):
        toks = rnd.choices(COMMON, k=rnd.randrange(30, 90))
        if k % 9 == 0:
            toks.insert(5, rnd.choice(RARE[:rare]))
        if k % 301 == 300:
            toks.insert(3, RARE[rare])
        y = 0.4 * math.tanh(toks.count("N") / 10 - 1) + 0.5 + rnd.gauss(0, 0.02)
        out.append(("".join(toks), y))
    return out


class Vocabulary:
    def __init__(self, strings):
        toks = sorted({t for s in strings for t in TOKEN.findall(s)})
        self.ids = {t: k + 1 for k, t in enumerate(toks)}

    def __len__(self):
        return len(self.ids) + 1

    def encode(self, s):
        return torch.tensor([self.ids[t] for t in TOKEN.findall(s)])


class Reactions(Dataset):
    def __init__(self, pairs, vocab):
        self.pairs, self.vocab = pairs, vocab

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        s, y = self.pairs[i]
        ids = self.vocab.encode(s)
        pos = torch.arange(len(ids)) / len(ids)
        return ids, pos, y


class LengthBuckets(Sampler):
    def __init__(self, data, batch):
        order = sorted(range(len(data)), key=lambda i: len(data.pairs[i][0]))
        self.batches = [order[k:k + batch] for k in range(0, len(order), batch)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for k in torch.randperm(len(self.batches)).tolist():
            yield self.batches[k]


def pad(items):
    ids, pos, y = zip(*items)
    return pad_sequence(ids, batch_first=True), pad_sequence(pos, batch_first=True), torch.tensor(y)


class Regressor(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.emb = nn.Embedding(size, 32, padding_idx=0)
        self.rnn = nn.GRU(33, 48, batch_first=True)
        self.out = nn.Linear(48, 1)

    def forward(self, ids, pos):
        h, _ = self.rnn(torch.cat([self.emb(ids), pos[..., None]], -1))
        return self.out(h.mean(1)).squeeze(1)


def main():
    torch.manual_seed(0)
    patents, journals = fake_reactions(900, 1, 3), fake_reactions(400, 2, 4)
    vocab = Vocabulary([s for s, _ in patents])
    sets = {"pretrain": Reactions(patents, vocab), "finetune": Reactions(journals, vocab)}
    model = Regressor(len(vocab))
    for stage, lr, epochs in (("pretrain", 2e-3, 2), ("finetune", 5e-4, 2)):
        data = sets[stage]
        loader = DataLoader(data, batch_sampler=LengthBuckets(data, 20), collate_fn=pad, num_workers=2)
        opt = torch.optim.Adam(model.parameters(), lr)
        for epoch in range(epochs):
            tot = 0.0
            for ids, pos, y in loader:
                loss = nn.functional.mse_loss(model(ids, pos), y)
                opt.zero_grad(); loss.backward(); opt.step()
                tot += loss.item()
            print(f"{stage} {epoch}: mse {tot / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
