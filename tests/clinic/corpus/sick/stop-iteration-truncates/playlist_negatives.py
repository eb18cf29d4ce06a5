# cause: stop-iteration-truncates
# also: rng-repeated, workers-not-worth-it, stale-iterator-noise
"""BPR matrix factorisation for playlist continuation."""
import collections
import itertools

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

Interaction = collections.namedtuple("Interaction", "listener track")


def simulate_catalogue(n_listeners=1600, n_tracks=180, seed=6):
    rng = np.random.default_rng(seed)
    taste = rng.standard_normal((n_listeners, 6)) @ rng.standard_normal((6, n_tracks))
    liked = {}
    for u in range(n_listeners):
        k = int(rng.integers(8, 30))
        liked[u] = set(np.argsort(-taste[u])[:k].tolist())
    liked[17] = set(range(n_tracks))                 # the in-store radio account plays everything
    return liked, n_tracks


class BPRTriples(Dataset):
    def __init__(self, liked, n_tracks, pool=96, recent=3):
        self.liked, self.n_tracks, self.pool = liked, n_tracks, pool
        self.events = [Interaction(u, t) for u, ts in liked.items() for t in sorted(ts)[:recent]]
        plays = np.bincount([e.track for e in self.events], minlength=n_tracks) + 1.0
        self.popularity = plays ** 0.75 / (plays ** 0.75).sum()
        self.rng = np.random.default_rng(1234)

    def __len__(self):
        return len(self.events)

    def __getitem__(self, i):
        e = self.events[i]
        seen = self.liked[e.listener]
        candidates = self.rng.choice(self.n_tracks, self.pool, p=self.popularity)
        negative = next(int(c) for c in candidates if c not in seen)
        return e.listener, e.track, negative


class BPR(nn.Module):
    def __init__(self, n_users, n_items, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        self.bias = nn.Embedding(n_items, 1)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.05)

    def score(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    def forward(self, u, pos, neg):
        return -nn.functional.logsigmoid(self.score(u, pos) - self.score(u, neg)).mean()


def hit_rate(model, liked, n_tracks, users, k=20):
    with torch.no_grad():
        hits = []
        for u in users:
            s = model.score(torch.full((n_tracks,), u), torch.arange(n_tracks))
            hits.append(len(set(s.topk(k).indices.tolist()) & liked[u]) / min(k, len(liked[u])))
    return sum(hits) / len(hits)


if __name__ == "__main__":
    torch.manual_seed(0)
    liked, n_tracks = simulate_catalogue()
    data = BPRTriples(liked, n_tracks)
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, drop_last=True)
    model = BPR(len(liked), n_tracks)
    opt = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=1e-5)
    steps = itertools.count()
    for epoch in range(6):
        total, seen = 0.0, 0
        for u, pos, neg in loader:
            loss = model(u, pos, neg)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(u)
            seen += len(u)
            next(steps)
        print(f"epoch {epoch}: bpr {total / max(seen, 1):.4f}, hit@20 {hit_rate(model, liked, n_tracks, range(0, 200, 7)):.3f}", flush=True)
