# cause: copy-on-write-growth
# also: worker-out-of-memory
# limits: memory=1G
"""Playlist continuation: from a listener's recent plays, predict the next track (sampled softmax)."""
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "listeners": 44000,
    "plays": 60,
    "tracks": 20000,
    "history": 40,
    "batch": 128,
    "epochs": 2,
    "workers": 2,
    "width": 32,
}


class ListeningLog:
    """The event log as the service exports it, grouped by listener."""

    def __init__(self, listeners, plays, tracks, seed=0):
        rng = np.random.default_rng(seed)
        clock = 1_600_000_000
        self.by_listener = {}
        for listener in range(listeners):
            heard = (rng.integers(tracks) + rng.normal(0, 150, plays).astype(int)) % tracks
            times = clock + rng.integers(30, 400, plays).cumsum()
            shares = rng.random(plays)
            self.by_listener[f"listener-{listener:06d}"] = list(zip(heard.tolist(), times.tolist(), shares.tolist()))

    def names(self):
        return list(self.by_listener)

    def __getitem__(self, name):
        return self.by_listener[name]


class NextTrack(Dataset):
    def __init__(self, log, names, history):
        self.log, self.names, self.history = log, names, history

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        events = self.log[self.names[index]]
        heard = [e for e in events if e[2] > 0.1]
        cut = random.randint(2, len(heard) - 1)
        context = heard[max(0, cut - self.history):cut]
        newest = context[-1][1]
        tracks = [track for track, _, _ in context]
        ages = [min(1.0, (newest - clock) / 20000) for _, clock, _ in context]
        finished = [share for _, _, share in context]
        pad = self.history - len(tracks)
        features = torch.tensor([ages + [0.0] * pad, finished + [0.0] * pad])
        return torch.tensor(tracks + [0] * pad), features, len(tracks), heard[cut][0]


class Recommender(nn.Module):
    def __init__(self, tracks, width):
        super().__init__()
        self.embedding = nn.Embedding(tracks, width)
        self.weigh = nn.Sequential(nn.Linear(width + 2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, tracks, features, length):
        h = self.embedding(tracks)
        weight = self.weigh(torch.cat([h, features.transpose(1, 2)], 2)).squeeze(2)
        weight = weight.masked_fill(torch.arange(tracks.shape[1]) >= length[:, None], -1e9).softmax(1)
        return (h * weight[..., None]).sum(1)

    def loss(self, query, target):
        """Softmax over the targets of the batch."""
        scores = query @ self.embedding(target).T
        return F.cross_entropy(scores, torch.arange(len(target)))


def make_loader(log, names, train):
    return DataLoader(NextTrack(log, names, CONFIG["history"]), batch_size=CONFIG["batch"], shuffle=train,
                      num_workers=CONFIG["workers"], drop_last=train, persistent_workers=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    log = ListeningLog(CONFIG["listeners"], CONFIG["plays"], CONFIG["tracks"])
    names = log.names()
    random.Random(1).shuffle(names)
    cut = int(len(names) * 0.97)
    train_loader = make_loader(log, names[:cut], True)
    val_loader = make_loader(log, names[cut:], False)
    print(f"{len(names)} listeners", flush=True)

    model = Recommender(CONFIG["tracks"], CONFIG["width"])
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(CONFIG["epochs"]):
        began = time.time()
        for step, (tracks, features, length, target) in enumerate(train_loader):
            loss = model.loss(model(tracks, features, length), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        with torch.no_grad():
            hits = seen = 0
            for tracks, features, length, target in val_loader:
                scores = model(tracks, features, length) @ model.embedding.weight.T
                hits += (scores.topk(50).indices == target[:, None]).any(1).sum().item()
                seen += len(target)
        print(f"epoch {epoch} recall@50 {hits / seen:.3f} in {time.time() - began:.1f} s", flush=True)
