# cause: lock-held-at-fork
"""Two-tower recommender with hard negatives that are mined anew from the item tower after each epoch."""
from dataclasses import dataclass
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    users: int = 500
    items: int = 4000
    history: int = 16
    dim: int = 32
    negatives: int = 12
    batch_size: int = 32
    epochs: int = 4
    workers: int = 2
    lr: float = 5e-3


class NegativePool:
    """For every item, the items that the model confuses it with. Readers may ask while it is rebuilt."""

    def __init__(self, n_items, width=64, seed=0):
        rng = np.random.default_rng(seed)
        self._near = rng.integers(0, n_items, size=(n_items, width), dtype=np.int32)
        self._mutex = threading.Lock()
        self._miner = None

    def draw(self, item, k):
        with self._mutex:
            row = self._near[item]
            return row[np.random.randint(0, len(row), k)]

    def refresh(self, vectors):
        """Starts mining on a copy of the item vectors and returns at once."""
        self._miner = threading.Thread(target=self._mine, args=(vectors,), daemon=True)
        self._miner.start()

    def _mine(self, vectors):
        with self._mutex:
            unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            width = self._near.shape[1]
            for item in range(len(unit)):
                score = unit @ unit[item]
                score[item] = -np.inf
                order = np.argsort(-score, kind="stable")
                self._near[item] = order[:width]


class Sessions(Dataset):
    def __init__(self, cfg, pool, split, seed=4):
        rng = np.random.default_rng(seed)
        taste = rng.normal(size=(cfg.users, 6))
        style = rng.normal(size=(cfg.items, 6))
        score = taste @ style.T + rng.gumbel(size=(cfg.users, cfg.items))
        liked = np.argsort(-score, axis=1)[:, :cfg.history + 4]
        liked = rng.permuted(liked, axis=1)
        self.history, self.target = liked[:, :cfg.history].copy(), liked[:, cfg.history:].copy()
        part = np.arange(cfg.users) % 5 == 0
        self.users = np.flatnonzero(part if split == "val" else ~part)
        self.pool, self.cfg = pool, cfg
        self.style = style.astype(np.float32)

    def __len__(self):
        return 2 * len(self.users)

    def _weights(self, history):
        """Recency and diversity weights of the history (greedy, maximal marginal relevance)."""
        vec = self.style[history]
        sim = vec @ vec.T / (np.linalg.norm(vec, axis=1)[:, None] * np.linalg.norm(vec, axis=1)[None])
        w = np.zeros(len(history), np.float32)
        chosen = []
        for rank in range(len(history)):
            gain = np.array([1.0 - (max(sim[j, c] for c in chosen) if chosen else 0.0) if w[j] == 0 else -9.0 for j in range(len(history))])
            best = int(gain.argmax())
            chosen.append(best)
            w[best] = 1.0 / (1 + rank)
        return w / w.sum()

    def __getitem__(self, i):
        user = self.users[i % len(self.users)]
        history = self.history[user]
        target = self.target[user, (i // len(self.users)) % self.target.shape[1]]
        candidates = np.concatenate([[target], self.pool.draw(target, self.cfg.negatives)])
        return torch.from_numpy(history), torch.from_numpy(self._weights(history)), torch.from_numpy(candidates)


class TwoTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.items = nn.Embedding(cfg.items, cfg.dim)
        self.query = nn.Sequential(nn.Linear(cfg.dim, 64), nn.ReLU(), nn.Linear(64, cfg.dim))

    def forward(self, history, weights, candidates):
        user = self.query((self.items(history) * weights[..., None]).sum(1))
        return torch.einsum("bd,bkd->bk", user, self.items(candidates))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.pool = NegativePool(cfg.items)
        self.model = TwoTower(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.train_data = Sessions(cfg, self.pool, "train")

    def train_loader(self):
        return DataLoader(self.train_data, self.cfg.batch_size, shuffle=True, num_workers=self.cfg.workers)

    def on_epoch_end(self, epoch):
        if epoch + 1 < self.cfg.epochs:
            self.pool.refresh(self.model.items.weight.detach().numpy().copy())
        with tempfile.TemporaryFile() as f:
            torch.save({"epoch": epoch, "model": self.model.state_dict()}, f)

    def fit(self):
        loader = self.train_loader()
        for epoch in range(self.cfg.epochs):
            began, losses, hits, seen = time.time(), [], 0, 0
            for history, weights, candidates in loader:
                logits = self.model(history, weights, candidates)
                loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
                hits += (logits.argmax(1) == 0).sum().item()
                seen += len(logits)
            print(f"epoch {epoch}: loss {np.mean(losses):.3f} hit@1 {hits / seen:.3f} ({time.time() - began:.1f} s)", flush=True)
            self.on_epoch_end(epoch)


if __name__ == "__main__":
    torch.manual_seed(7)
    np.random.seed(7)
    Trainer(Config()).fit()
