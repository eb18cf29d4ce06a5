# cause: fd-exhausted
# also: workers-not-worth-it
# limits: nofile=256
"""Two-tower model for implicit feedback (anime ratings), leave-one-out evaluation."""
import argparse
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("recsys")


def simulate_ratings(n_users, n_titles, per_user, seed):
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(n_users, 4))
    genre = rng.normal(size=(n_titles, 4))
    scores = taste @ genre.T + rng.gumbel(size=(n_users, n_titles))
    return np.argpartition(-scores, per_user, axis=1)[:, :per_user].astype(np.int64)


class WatchedTitles(Dataset):
    """(history, candidate, label); half of the candidates are titles the user never opened."""

    def __init__(self, watched, n_titles, max_len=20):
        self.watched = watched
        self.n_titles = n_titles
        self.max_len = max_len
        self.pairs = np.stack(np.meshgrid(np.arange(watched.shape[0]), np.arange(1, watched.shape[1]), indexing="ij"), -1)
        self.pairs = self.pairs.reshape(-1, 2)

    def __len__(self):
        return len(self.pairs)

    def _unseen(self, user):
        seen = set(self.watched[user].tolist())
        while True:
            t = int(np.random.randint(self.n_titles))
            if t not in seen:
                return t

    def __getitem__(self, i):
        user, pos = self.pairs[i]
        past = self.watched[user, :pos][-self.max_len:]
        hist = np.zeros(self.max_len, np.int64)
        hist[: len(past)] = past + 1
        positive = np.random.random() < 0.5
        title = int(self.watched[user, pos]) if positive else self._unseen(user)
        return torch.from_numpy(hist), title + 1, float(positive)


class TwoTower(nn.Module):
    def __init__(self, n_titles, dim):
        super().__init__()
        self.emb = nn.Embedding(n_titles + 1, dim, padding_idx=0)
        self.user = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, hist, title):
        mask = (hist > 0).float().unsqueeze(-1)
        pooled = (self.emb(hist) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return (self.user(pooled) * self.emb(title)).sum(-1)


def auc(label, score):
    order = score.argsort()
    rank = torch.empty_like(score)
    rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    n_pos = label.sum()
    n_neg = len(label) - n_pos
    return ((rank[label > 0].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)).item()


class Trainer:
    def __init__(self, args):
        watched = simulate_ratings(args.users, args.titles, 25, args.seed)
        cut = int(0.5 * args.users)
        self.train_set = WatchedTitles(watched[:cut], args.titles)
        self.eval_set = WatchedTitles(watched[cut:], args.titles)
        self.model = TwoTower(args.titles, args.dim)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.args = args

    def loader(self, ds, batch, shuffle):
        return DataLoader(ds, batch_size=batch, shuffle=shuffle, num_workers=self.args.workers)

    def fit(self, workdir):
        train, valid = self.loader(self.train_set, 512, True), self.loader(self.eval_set, 64, False)
        best = 0.0
        for epoch in range(self.args.epochs):
            self.model.train()
            total = 0.0
            for hist, title, y in train:
                loss = F.binary_cross_entropy_with_logits(self.model(hist, title), y.float())
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            log.info("epoch %d train loss %.4f", epoch, total / len(train))
            score = self.evaluate(valid)
            log.info("epoch %d auc %.4f", epoch, score)
            if score > best:
                best = score
                torch.save(self.model.state_dict(), os.path.join(workdir, "best.pt"))

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        titles, labels, scores = [], [], []
        for hist, title, y in loader:
            scores.append(self.model(hist, title))
            labels.append(y)
            titles.append(title)
        labels, scores, titles = torch.cat(labels), torch.cat(scores), torch.cat(titles)
        popular = titles <= titles.median()
        log.info("auc on popular titles %.4f", auc(labels[popular], scores[popular]))
        return auc(labels, scores)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=1600)
    p.add_argument("--titles", type=int, default=900)
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as d:
        Trainer(args).fit(d)
