# cause: map-count-exhausted
# also: many-small-tensors
"""Point-set scorer that replays everything it has seen (experience replay from a simulator feed)."""
import random

import torch
from torch import nn
from torch.multiprocessing import set_sharing_strategy
from torch.utils.data import DataLoader, Dataset

set_sharing_strategy("file_system")


class Encounters(Dataset):
    """One encounter: a handful of tracked objects, each with its own feature row."""

    def __init__(self, n, objects):
        self.n, self.objects = n, objects

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        rows = torch.randn(self.objects, 6, generator=gen)
        score = torch.tanh(rows[:, :3].sum())
        return {"objects": [r.clone() for r in rows], "score": score}


def gather(samples):
    return samples


class DeepSet(nn.Module):
    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32))
        self.rho = nn.Sequential(nn.ReLU(), nn.Linear(32, 1))

    def forward(self, sets):
        return self.rho(self.phi(sets).sum(1)).squeeze(1)


class Replay:
    def __init__(self):
        self.items = []

    def extend(self, samples):
        self.items.extend(samples)

    def sample(self, k):
        chosen = random.sample(self.items, k)
        x = torch.stack([torch.stack(s["objects"]) for s in chosen])
        y = torch.stack([s["score"] for s in chosen])
        return x, y


class Learner:
    def __init__(self, lr=1e-3):
        self.net = DeepSet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr)
        self.replay = Replay()

    def observe(self, samples):
        self.replay.extend(samples)

    def improve(self):
        x, y = self.replay.sample(64)
        loss = nn.functional.mse_loss(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    feed = DataLoader(Encounters(6400, 19), batch_size=64, num_workers=2, collate_fn=gather)
    learner = Learner()
    for step, samples in enumerate(feed):
        learner.observe(samples)
        loss = learner.improve()
        if step % 10 == 0:
            print(f"step {step:4d}  stored {len(learner.replay.items):6d}  loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
