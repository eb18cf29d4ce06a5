# cause: stop-iteration-truncates
# also: dataset-raises
"""Song embeddings for playlist continuation: triplets of (context, liked song, song not liked)."""
import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_SONGS, N_GENRES, N_FRAMES = 400, 12, 256


class Catalogue:
    """Songs with a fingerprint that is computed from stored partials when asked for."""

    def __init__(self, g):
        self.genre = g.integers(0, N_GENRES, N_SONGS)
        self.partials = g.uniform(50, 4000, (N_SONGS, 24)).astype(np.float32)
        self.tempo = g.uniform(60, 180, N_SONGS).astype(np.float32)
        self.by_genre = [np.flatnonzero(self.genre == k) for k in range(N_GENRES)]

    def fingerprint(self, song):
        t = np.arange(N_FRAMES * 32, dtype=np.float32) / 8000
        x = sum(np.sin(6.2832 * f * t) for f in self.partials[song]) * (1 + np.sin(6.2832 * self.tempo[song] / 60 * t))
        spec = np.abs(np.fft.rfft(x.reshape(-1, 256) * np.hanning(256), axis=1))
        bands = np.log1p(spec[:, :128].reshape(len(spec), 32, 4).sum(-1))
        return np.concatenate([bands.mean(0), bands.std(0)]).astype(np.float32)


class Histories:
    """Who listened to what, as one flat array with offsets."""

    def __init__(self, g, catalogue, users):
        rows = []
        for u in range(users):
            taste = g.choice(N_GENRES, 3, replace=False)
            pool = np.concatenate([catalogue.by_genre[k] for k in taste])
            rows.append(g.choice(pool, min(len(pool), int(g.integers(8, 30))), replace=False))
        for u in g.choice(users, 3, replace=False):
            whole = catalogue.by_genre[int(g.integers(N_GENRES))]
            rows[u] = np.concatenate([rows[u], whole])
        self.offsets = np.cumsum([0] + [len(r) for r in rows])
        self.songs = np.concatenate(rows)

    def __len__(self):
        return len(self.offsets) - 1

    def of(self, user):
        return self.songs[self.offsets[user]:self.offsets[user + 1]]


class Negatives:
    """Hard negatives: same genre as the liked song, never heard by this user."""

    def __init__(self, catalogue):
        self.catalogue = catalogue

    def candidates(self, song):
        pool = self.catalogue.by_genre[self.catalogue.genre[song]]
        return np.random.permutation(pool)

    def draw(self, song, heard):
        heard = set(heard.tolist())
        return next(int(c) for c in self.candidates(song) if int(c) not in heard)


class Triplets(Dataset):
    def __init__(self, catalogue, histories, context=4):
        self.catalogue, self.histories, self.context = catalogue, histories, context
        self.negatives = Negatives(catalogue)

    def __len__(self):
        return len(self.histories)

    def __getitem__(self, user):
        heard = self.histories.of(user)
        liked = int(heard[-1])
        context = np.random.choice(heard[:-1], self.context)
        other = self.negatives.draw(liked, heard)
        x = np.stack([self.catalogue.fingerprint(s) for s in context])
        return {"context": torch.from_numpy(x), "liked": torch.from_numpy(self.catalogue.fingerprint(liked)),
                "other": torch.from_numpy(self.catalogue.fingerprint(other))}


class Tower(nn.Module):
    def __init__(self, out=32):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, out))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(torch.initial_seed())


def train_one_epoch(model, loader, opt, margin):
    total = wins = count = 0
    for batch in loader:
        anchor = nn.functional.normalize(model(batch["context"]).mean(1), dim=-1)
        near, far = (anchor * model(batch["liked"])).sum(-1), (anchor * model(batch["other"])).sum(-1)
        loss = (margin - near + far).clamp(min=0).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(near)
        wins += (near > far).sum().item()
        count += len(near)
    return total / max(count, 1), wins / max(count, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=1600)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--margin", type=float, default=0.3)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    g = np.random.default_rng(3)
    catalogue = Catalogue(g)
    histories = Histories(g, catalogue, a.users)
    loader = DataLoader(Triplets(catalogue, histories), batch_size=20, shuffle=True, num_workers=a.workers, worker_init_fn=seed_worker, persistent_workers=True)
    model = Tower()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(a.epochs):
        t = time.time()
        loss, rank = train_one_epoch(model, loader, opt, a.margin)
        print(f"epoch {epoch}: loss {loss:.4f}, ranked right {rank:.3f}, {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
