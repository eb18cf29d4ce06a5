# cause: workers-not-worth-it
"""Song recommendation with matrix factorisation; listening events live in three arrays."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Listening(Dataset):
    """Indexed with a whole list of events at a time; draws the negatives on the spot."""

    def __init__(self, users, songs, events, seed=0):
        rng = np.random.default_rng(seed)
        taste = rng.integers(0, 8, users)
        self.user = rng.integers(0, users, events)
        self.song = (rng.integers(0, songs // 8, events) * 8 + taste[self.user]) % songs
        self.plays = rng.poisson(2.0, events).astype(np.float32)
        self.songs = songs

    def __len__(self):
        return len(self.user)

    def __getitem__(self, events):
        events = np.asarray(events)
        other = np.random.randint(0, self.songs, len(events))
        return (torch.from_numpy(self.user[events]), torch.from_numpy(self.song[events]),
                torch.from_numpy(other), torch.from_numpy(self.plays[events]))


class Factors(nn.Module):
    def __init__(self, users, songs, width):
        super().__init__()
        self.user, self.song = nn.Embedding(users, width), nn.Embedding(songs, width)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.song.weight, std=0.1)

    def forward(self, u, s):
        return (self.user(u) * self.song(s)).sum(1)


class Progress:
    def __init__(self, every):
        self.every, self.began, self.value = every, time.time(), None

    def __call__(self, step, loss):
        self.value = loss if self.value is None else 0.98 * self.value + 0.02 * loss
        if step % self.every == 0:
            print(f"{step:5d} bpr {self.value:.4f} {time.time() - self.began:.1f}s", flush=True)


def build(a):
    data = Listening(a.users, a.songs, a.events)
    order = BatchSampler(RandomSampler(data), a.batch, drop_last=True)
    return DataLoader(data, sampler=order, batch_size=None, num_workers=a.workers)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=600)
    p.add_argument("--songs", type=int, default=800)
    p.add_argument("--events", type=int, default=50_000)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = build(a)
    net = Factors(a.users, a.songs, 16)
    opt = torch.optim.SGD(net.parameters(), 2.0)
    report = Progress(500)
    for step, (u, s, other, plays) in enumerate(loader):
        margin = net(u, s) - net(u, other)
        loss = -(torch.log1p(plays) * nn.functional.logsigmoid(margin)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        report(step, loss.item())
    print(f"finished in {time.time() - report.began:.1f}s")


if __name__ == "__main__":
    main()
