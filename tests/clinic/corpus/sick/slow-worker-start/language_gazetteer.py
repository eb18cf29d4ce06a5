# cause: slow-worker-start
# arguments: --epochs 2
"""Language identification from character n-grams with a large gazetteer of known words."""
import argparse
import hashlib
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LANGS = ["de", "en", "fi", "it", "pl", "tr"]
ALPHA = {
    "de": "aeinrstulhdgmb", "en": "etaoinshrdlucm", "fi": "aitneslokumyvj",
    "it": "eaionlrtscdpum", "pl": "aiezonrwscytkd", "tr": "aeinrlikdmyust",
}


def word(rnd, lang):
    return "".join(rnd.choice(ALPHA[lang]) for _ in range(rnd.randint(3, 9)))


def make_gazetteer(rnd, size):
    """word -> details of every language in which it was seen"""
    table = {}
    for k in range(size):
        lang = LANGS[k % len(LANGS)]
        w = word(rnd, lang)
        entry = table.setdefault(w, {"langs": [], "count": 0, "forms": []})
        entry["langs"].append(lang)
        entry["count"] += rnd.randint(1, 90)
        entry["forms"].append((w.title(), w + ALPHA[lang][0]))
    return table


class Sentences(Dataset):
    def __init__(self, gazetteer, n, buckets=4096, length=24, seed=0):
        rnd = random.Random(seed)
        self.gazetteer = gazetteer
        known = list(gazetteer)
        self.buckets, self.length = buckets, length
        self.items = []
        for _ in range(n):
            lang = rnd.choice(LANGS)
            words = [word(rnd, lang) for _ in range(rnd.randint(6, 14))] + [rnd.choice(known)]
            self.items.append((" ".join(words), LANGS.index(lang)))

    def __len__(self):
        return len(self.items)

    def bucket(self, gram):
        return int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=4).digest(), "little") % self.buckets

    def __getitem__(self, i):
        text, label = self.items[i]
        grams = torch.zeros(256, dtype=torch.long)
        pieces = [text[k:k + n] for n in (2, 3) for k in range(len(text) - n)][:256]
        grams[:len(pieces)] = torch.tensor([self.bucket(p) for p in pieces])
        votes = torch.zeros(len(LANGS))
        for w in text.split():
            entry = self.gazetteer.get(w)
            if entry is not None:
                for lang in entry["langs"]:
                    votes[LANGS.index(lang)] += min(entry["count"], 50) / 50
        return grams, votes, label


class Identifier(nn.Module):
    def __init__(self, buckets=4096, dim=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(buckets, dim, mode="mean")
        self.out = nn.Sequential(nn.Linear(dim + len(LANGS), 32), nn.GELU(), nn.Linear(32, len(LANGS)))

    def forward(self, grams, votes):
        return self.out(torch.cat([self.bag(grams), votes.tanh()], 1))


def main(args):
    rnd = random.Random(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gazetteer = make_gazetteer(rnd, args.gazetteer)
    train = Sentences(gazetteer, args.sentences)
    loader = DataLoader(train, batch_size=32, shuffle=True, num_workers=args.workers,
                        persistent_workers=True, multiprocessing_context="spawn")
    model = Identifier()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        start, right, seen = time.time(), 0, 0
        for grams, votes, label in loader:
            out = model(grams, votes)
            loss = nn.functional.cross_entropy(out, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += (out.argmax(1) == label).sum().item()
            seen += len(label)
        print(f"epoch {epoch} accuracy {right / seen:.3f} over {seen} sentences, {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--epochs", type=int, default=2)
    cli.add_argument("--sentences", type=int, default=2400)
    cli.add_argument("--gazetteer", type=int, default=150_000)
    cli.add_argument("--workers", type=int, default=3)
    main(cli.parse_args())
