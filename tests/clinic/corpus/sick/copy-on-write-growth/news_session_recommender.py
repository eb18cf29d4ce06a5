# cause: copy-on-write-growth
# also: too-many-workers
"""Next-article prediction from reading sessions (MIND-like log)."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Subset


@dataclass
class Config:
    n_sessions: int = 20_000
    n_articles: int = 30_000
    mean_len: int = 160
    max_len: int = 30
    negatives: int = 8
    dim: int = 48
    batch_size: int = 256
    workers: int = 4
    epochs: int = 8
    lr: float = 2e-3
    log_every: int = 25


def parse_behaviours(cfg):
    """One record per session, as the log parser gives them."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(cfg.mean_len - 30, cfg.mean_len + 30, size=cfg.n_sessions)
    sessions = []
    for sid, n in enumerate(lengths):
        clicks = rng.integers(1000, cfg.n_articles, size=n).tolist()
        dwell = rng.exponential(40.0, size=n).tolist()
        sessions.append({"session": f"U{sid:07d}", "clicks": clicks, "dwell": dwell})
    return sessions


class SessionDataset(Dataset):
    def __init__(self, sessions, cfg):
        self.sessions = sessions
        self.cfg = cfg

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, idx):
        cfg = self.cfg
        s = self.sessions[idx]
        # skip articles that were only bounced
        read = [a for a, d in zip(s["clicks"], s["dwell"]) if d > 4.0]
        target, context = read[-1], read[:-1][-cfg.max_len:]
        seen = set(s["clicks"])
        drawn = np.random.randint(cfg.n_articles, size=4 * cfg.negatives).tolist()
        candidates = [target] + [a for a in drawn if a not in seen][:cfg.negatives]
        x = torch.zeros(cfg.max_len, dtype=torch.long)
        x[: len(context)] = torch.tensor(context)
        return x, torch.tensor(candidates)


class AttentivePooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 1))

    def forward(self, x, mask):
        w = self.score(x).squeeze(-1).masked_fill(~mask, -1e9).softmax(-1)
        return (w.unsqueeze(-1) * x).sum(1)


class NewsRec(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.articles = nn.Embedding(cfg.n_articles, cfg.dim, padding_idx=0, sparse=True)
        self.pool = AttentivePooling(cfg.dim)

    def forward(self, hist, cand):
        user = self.pool(self.articles(hist), hist > 0)
        return torch.einsum("bd,bcd->bc", user, self.articles(cand))


def build_loaders(cfg):
    ds = SessionDataset(parse_behaviours(cfg), cfg)
    perm = torch.randperm(len(ds), generator=torch.Generator().manual_seed(0)).tolist()
    n_val = len(ds) // 20
    common = dict(batch_size=cfg.batch_size, num_workers=cfg.workers, persistent_workers=True)
    return (DataLoader(Subset(ds, perm[n_val:]), shuffle=True, drop_last=True, **common),
            DataLoader(Subset(ds, perm[:n_val]), **{**common, "num_workers": 1}))


def run_epoch(model, loader, opts, cfg, train):
    model.train(train)
    hit = seen = 0
    tick = time.perf_counter()
    for step, (hist, cand) in enumerate(loader):
        with torch.set_grad_enabled(train):
            logits = model(hist, cand)
            loss = nn.functional.cross_entropy(logits, torch.zeros(len(hist), dtype=torch.long))
        if train:
            for o in opts:
                o.zero_grad()
            loss.backward()
            for o in opts:
                o.step()
        hit += (logits.argmax(1) == 0).sum().item()
        seen += len(hist)
        if train and step % cfg.log_every == 0:
            print(f"  step {step:4d} loss {loss.item():.4f} {seen / (time.perf_counter() - tick):.0f} sessions/s", flush=True)
    return hit / seen


def main(cfg=Config()):
    torch.manual_seed(1)
    train_loader, valid_loader = build_loaders(cfg)
    model = NewsRec(cfg)
    opts = [torch.optim.SGD(model.articles.parameters(), lr=50 * cfg.lr),
            torch.optim.Adam(model.pool.parameters(), lr=cfg.lr)]
    for epoch in range(cfg.epochs):
        acc = run_epoch(model, train_loader, opts, cfg, True)
        val = run_epoch(model, valid_loader, opts, cfg, False)
        print(f"epoch {epoch}: hit@1 {acc:.4f} / {val:.4f}", flush=True)


if __name__ == "__main__":
    main()
