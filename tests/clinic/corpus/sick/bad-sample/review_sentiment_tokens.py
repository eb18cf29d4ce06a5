# cause: bad-sample
"""Sentiment of product reviews: train on last year's export, validate on this quarter's."""
import argparse
import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, CLS, SEP, UNK = range(4)
GOOD = "great solid lovely quick bright sturdy perfect happy".split()
BAD = "broken late dull flimsy awful noisy wrong refund".split()
PLAIN = "the a this it was i my for with and box lamp phone chair order came very after one week".split()


@dataclass
class ReviewConfig:
    max_len: int = 64
    dim: int = 48
    batch_size: int = 32
    epochs: int = 4
    workers: int = 2
    lr: float = 1e-3


@dataclass
class Review:
    text: str
    stars: int


def last_year(n, rnd):
    return [_review(rnd, rnd.randint(8, 50)) for _ in range(n)]


def this_quarter(n, rnd):
    """Since spring the form accepts longer texts."""
    return [_review(rnd, rnd.randint(8, 50) if rnd.random() < 0.97 else rnd.randint(61, 90)) for _ in range(n)]


def _review(rnd, length):
    stars = rnd.choice([1, 2, 4, 5])
    mood = GOOD if stars > 3 else BAD
    return Review(" ".join(rnd.choice(mood) if rnd.random() < 0.2 else rnd.choice(PLAIN) for _ in range(length)), stars)


class WordTokenizer:
    def __init__(self, reviews):
        words = sorted({w for r in reviews for w in r.text.split()})
        self.table = {w: k for k, w in enumerate(words, start=4)}

    @property
    def size(self):
        return len(self.table) + 4

    def encode(self, text, max_len):
        ids = [self.table.get(w, UNK) for w in text.split()][:max_len]
        ids = [CLS] + ids + [SEP]
        return ids + [PAD] * (max_len - len(ids))


class ReviewDataset(Dataset):
    def __init__(self, reviews, tokenizer, max_len):
        self.reviews, self.tokenizer, self.max_len = reviews, tokenizer, max_len

    def __len__(self):
        return len(self.reviews)

    def __getitem__(self, i):
        review = self.reviews[i]
        ids = torch.tensor(self.tokenizer.encode(review.text, self.max_len))
        return {"input_ids": ids, "attention_mask": ids != PAD, "label": torch.tensor(int(review.stars > 3))}


class SentimentGRU(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.gru = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, 2)

    def forward(self, input_ids, attention_mask):
        h, _ = self.gru(self.emb(input_ids))
        m = attention_mask.unsqueeze(-1)
        return self.out((h * m).sum(1) / m.sum(1))


class SentimentTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        rnd = random.Random(12)
        old, new = last_year(640, rnd), this_quarter(480, rnd)
        tok = WordTokenizer(old)
        self.train_loader = self.build(old, tok, True)
        self.val_loader = self.build(new, tok, False)
        self.model = SentimentGRU(tok.size, cfg.dim)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def build(self, reviews, tok, shuffle):
        return DataLoader(ReviewDataset(reviews, tok, self.cfg.max_len), batch_size=self.cfg.batch_size,
                          shuffle=shuffle, num_workers=self.cfg.workers, persistent_workers=True)

    def train_epoch(self):
        self.model.train()
        for step, batch in enumerate(self.train_loader):
            label = batch.pop("label")
            loss = nn.functional.cross_entropy(self.model(**batch), label)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            if step % 10 == 0:
                print(f"  step {step:3d} loss {loss.item():.4f}", flush=True)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = n = 0
        for batch in self.val_loader:
            label = batch.pop("label")
            right += (self.model(**batch).argmax(1) == label).sum().item()
            n += len(label)
        return right / n

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.train_epoch()
            print(f"epoch {epoch}: accuracy {self.validate():.3f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    SentimentTrainer(ReviewConfig(epochs=ap.parse_args().epochs)).fit()
