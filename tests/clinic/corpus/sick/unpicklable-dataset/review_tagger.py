# cause: unpicklable-dataset, rng-repeated
# arguments: --epochs 2
import argparse
import collections
import re
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

GOOD = "crisp bright charming sturdy generous warm clever quick fresh superb".split()
BAD = "dull broken rude slow stale flimsy noisy bitter cold awful".split()
PLAIN = "the a it was room food phone staff screen battery seller parcel and but very quite rather with our their".split()
TOKEN = re.compile(r"[a-z]+|[!?.]")


def invent(n, rng):
    rows = []
    for _ in range(n):
        label = int(rng.integers(2))
        words = []
        for _ in range(int(rng.integers(60, 140))):
            roll = rng.random()
            if roll < 0.12:
                words.append(str(rng.choice(GOOD if label else BAD)))
            elif roll < 0.16:
                words.append(str(rng.choice(BAD if label else GOOD)))
            else:
                words.append(str(rng.choice(PLAIN)))
        rows.append((" ".join(words).capitalize() + ".", label))
    return rows


def build_vocab(rows, floor=2):
    counts = collections.Counter(tok for text, _ in rows for tok in TOKEN.findall(text.lower()))
    return {w: i + 2 for i, (w, c) in enumerate(counts.most_common()) if c >= floor}


class Reviews(Dataset):
    """Tokenises on the fly; drops words and swaps neighbours as augmentation."""

    def __init__(self, rows, vocab, drop=0.15, seed=0):
        self.rows = rows
        self.vocab = vocab
        self.drop = drop
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.rows)

    def hashes(self, text, buckets=128):
        out = np.zeros(buckets, dtype=np.float32)
        for n in (2, 3, 4):
            for i in range(len(text) - n + 1):
                h = 2166136261
                for ch in text[i:i + n]:
                    h = ((h ^ ord(ch)) * 16777619) & 0xFFFFFFFF
                out[h % buckets] += 1
        return out / max(out.sum(), 1)

    def __getitem__(self, i):
        text, label = self.rows[i]
        toks = TOKEN.findall(text.lower())
        keep = self.rng.random(len(toks)) >= self.drop
        toks = [t for t, k in zip(toks, keep) if k]
        j = int(self.rng.integers(0, max(1, len(toks) - 1)))
        toks[j:j + 2] = toks[j:j + 2][::-1]
        ids = [self.vocab.get(t, 1) for t in toks]
        return {"ids": ids, "chars": self.hashes(" ".join(toks)), "label": label}


def make_collate(max_len, pad=0):
    def collate(batch):
        longest = min(max_len, max(len(b["ids"]) for b in batch))
        ids = torch.full((len(batch), longest), pad, dtype=torch.long)
        for r, b in enumerate(batch):
            seq = torch.tensor(b["ids"][:longest])
            ids[r, :len(seq)] = seq
        chars = torch.from_numpy(np.stack([b["chars"] for b in batch]))
        return ids, chars, torch.tensor([b["label"] for b in batch])
    return collate


class Tagger(nn.Module):
    def __init__(self, n_words, dim=24):
        super().__init__()
        self.embed = nn.Embedding(n_words, dim, padding_idx=0)
        self.out = nn.Sequential(nn.Linear(dim + 128, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, ids, chars):
        mask = (ids > 0).unsqueeze(-1)
        pooled = (self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.out(torch.cat([pooled, chars], 1))


def train(args):
    torch.manual_seed(args.seed)
    rows = invent(args.reviews, np.random.default_rng(args.seed))
    vocab = build_vocab(rows)
    train_rows, held = random_split(rows, [0.9, 0.1])
    loader = DataLoader(Reviews(list(train_rows), vocab, seed=args.seed), batch_size=32, shuffle=True,
                        num_workers=args.workers, collate_fn=make_collate(args.max_len),
                        persistent_workers=args.workers > 0)
    quiet = Reviews(list(held), vocab, drop=0.0, seed=1)
    exam = make_collate(args.max_len)([quiet[i] for i in range(len(quiet))])
    model = Tagger(len(vocab) + 2)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(1, args.epochs + 1):
        began, total, seen = time.time(), 0.0, 0
        model.train()
        for ids, chars, label in loader:
            opt.zero_grad()
            loss = loss_fn(model(ids, chars), label)
            loss.backward()
            opt.step()
            total += loss.item() * len(label)
            seen += len(label)
        model.eval()
        with torch.no_grad():
            ids, chars, label = exam
            acc = (model(ids, chars).argmax(1) == label).float().mean().item()
        print(f"epoch {epoch}: loss {total / seen:.4f}, held-out accuracy {acc:.3f}, {time.time() - began:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="review polarity")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--reviews", type=int, default=800)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--seed", type=int, default=7)
    mp.set_start_method("spawn")
    train(parser.parse_args())
