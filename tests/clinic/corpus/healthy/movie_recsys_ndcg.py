# limits: nofile=256
"""Sequential recommender (small transformer), sampled NDCG over all validation batches."""
import argparse
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("sasrec-lite")


def simulate_histories(n_users, n_movies, length, seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(n_movies, size=(n_users, 1))
    steps = rng.integers(1, 6, size=(n_users, length - 1))
    return np.concatenate([start, (start + steps.cumsum(1))], axis=1) % n_movies + 1


class MovieHistories(Dataset):
    """history -> next movie, against titles the user has not watched."""

    def __init__(self, histories, n_movies, negatives):
        self.histories, self.n_movies, self.negatives = histories, n_movies, negatives

    def __len__(self):
        return len(self.histories)

    def __getitem__(self, user):
        row = self.histories[user]
        seen = np.zeros(self.n_movies + 1, bool)
        seen[row] = True
        unseen = np.flatnonzero(~seen[1:]) + 1
        neg = np.random.permutation(unseen)[: self.negatives]
        return {"user": user, "history": torch.from_numpy(row[:-1]),
                "candidates": torch.from_numpy(np.concatenate([row[-1:], neg]))}


class SequenceModel(nn.Module):
    def __init__(self, n_movies, length, dim, layers):
        super().__init__()
        self.item = nn.Embedding(n_movies + 1, dim, padding_idx=0)
        self.pos = nn.Parameter(torch.zeros(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, history, candidates):
        h = self.encoder(self.item(history) + self.pos[: history.shape[1]])[:, -1]
        return torch.einsum("bd,bcd->bc", h, self.item(candidates))


class Trainer:
    def __init__(self, args):
        hist = simulate_histories(args.users, args.movies, 33, args.seed)
        cut = args.users // 2
        kw = dict(num_workers=args.workers, persistent_workers=True)
        self.train = DataLoader(MovieHistories(hist[:cut], args.movies, 20), batch_size=32, shuffle=True, drop_last=True, **kw)
        self.valid = DataLoader(MovieHistories(hist[cut:], args.movies, 50), batch_size=8, **kw)
        self.model = SequenceModel(args.movies, 32, args.dim, args.layers)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.args = args

    def fit(self, workdir):
        for epoch in range(self.args.epochs):
            self.model.train()
            total = 0.0
            for batch in self.train:
                logits = self.model(batch["history"], batch["candidates"])
                loss = nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            log.info("epoch %d loss %.4f", epoch, total / len(self.train))
            ndcg, worst = self.evaluate()
            log.info("epoch %d ndcg@10 %.4f, hardest users %s", epoch, ndcg, worst)
            torch.save(self.model.state_dict(), os.path.join(workdir, f"epoch{epoch}.pt"))

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        users, histories, ranks = [], [], []
        for batch in self.valid:
            scores = self.model(batch["history"], batch["candidates"])
            ranks.append((scores[:, 1:] > scores[:, :1]).sum(1))
            users.append(batch["user"].clone())
            histories.append(batch["history"][:, -5:].clone())
        users, ranks = torch.cat(users), torch.cat(ranks)
        assert len(torch.cat(histories)) == len(self.valid.dataset)
        gain = torch.where(ranks < 10, 1 / torch.log2(ranks + 2.0), torch.zeros(()))
        return gain.mean().item(), users[ranks.argsort(descending=True)[:3]].tolist()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=2800)
    p.add_argument("--movies", type=int, default=1500)
    p.add_argument("--dim", type=int, default=144)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--seed", type=int, default=7)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as d:
        Trainer(args).fit(d)


if __name__ == "__main__":
    main()
