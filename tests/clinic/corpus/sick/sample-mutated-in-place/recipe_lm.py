# cause: sample-mutated-in-place
"""Character-ish language model over recipes; steps are packed as lists of token ids."""
import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

BOS, EOS, PAD = 1, 2, 0
VERBS = "chop dice fry simmer bake whisk fold season knead rest chill glaze".split()
NOUNS = "onion garlic butter flour egg milk carrot basil rice tomato salt lentil".split()


class Vocab(dict):
    def __init__(self):
        super().__init__()
        for w in ["<pad>", "<bos>", "<eos>", "the", "then", "until", "minutes"] + VERBS + NOUNS + [str(k) for k in range(60)]:
            self.setdefault(w, len(self))


def cook(rnd, vocab):
    toks = []
    for _ in range(rnd.randint(8, 20)):
        line = f"{rnd.choice(VERBS)} the {rnd.choice(NOUNS)} until {rnd.randrange(60)} minutes then"
        toks += [vocab[w] for w in line.split()]
    return toks


def bigram_rarity(tokens):
    """How unusual every token is in its neighbourhood; used to weight the loss."""
    out = []
    for i in range(len(tokens)):
        lo, hi = max(0, i - 24), i + 24
        window = tokens[lo:hi]
        out.append(1.0 / (1 + sum(1 for w in window if w == tokens[i])))
    return out


class Recipes(Dataset):
    def __init__(self, texts, meta):
        self.items = [{"ids": t, "meta": m} for t, m in zip(texts, meta)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        item = self.items[i]
        ids = item["ids"]
        ids.insert(0, BOS)
        ids.append(EOS)
        return torch.tensor(ids), torch.tensor(bigram_rarity(ids)), item["meta"]


def collate(rows):
    ids, w, meta = zip(*rows)
    return pad_sequence(ids, batch_first=True), pad_sequence(w, batch_first=True), torch.tensor(meta)


class LM(nn.Module):
    def __init__(self, v, d=48):
        super().__init__()
        self.e, self.r, self.o = nn.Embedding(v, d, padding_idx=PAD), nn.GRU(d, d, batch_first=True), nn.Linear(d, v)

    def forward(self, x):
        return self.o(self.r(self.e(x))[0])


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--recipes", type=int, default=300)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--bs", type=int, default=25)
    p.add_argument("-j", type=int, default=2)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(1)
    rnd, vocab = random.Random(1), Vocab()
    ds = Recipes([cook(rnd, vocab) for _ in range(args.recipes)], [rnd.randrange(4) for _ in range(args.recipes)])
    dl = DataLoader(ds, args.bs, shuffle=False, num_workers=args.j, collate_fn=collate, persistent_workers=args.j > 0)
    lm = LM(len(vocab))
    opt = torch.optim.Adam(lm.parameters(), 3e-3)
    for ep in range(args.epochs):
        num = den = 0.0
        for ids, w, _ in dl:
            logits = lm(ids[:, :-1])
            ce = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none", ignore_index=PAD)
            loss = (ce * w[:, 1:]).sum() / w[:, 1:].sum()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
            opt.step()
            num, den = num + loss.item(), den + 1
        print(f"epoch {ep} weighted nll {num / den:.3f}", flush=True)


if __name__ == "__main__":
    main()
