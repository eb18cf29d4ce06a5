# cause: many-small-tensors
# also: workers-restarted
"""Trajectory forecasting: every scene has a few agents, every agent its own history and future."""
import math
import random
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Agent(NamedTuple):
    history: torch.Tensor
    future: torch.Tensor
    extent: torch.Tensor
    kind: torch.Tensor


class Scenes(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def simulate(self, rnd):
        x, y, v, h = rnd.uniform(-40, 40), rnd.uniform(-40, 40), rnd.uniform(2, 14), rnd.uniform(0, 2 * math.pi)
        turn = rnd.gauss(0, 0.05)
        track = []
        for _ in range(22):
            h += turn
            x += 0.2 * v * math.cos(h)
            y += 0.2 * v * math.sin(h)
            track.append((x, y, math.cos(h), math.sin(h)))
        return track

    def __getitem__(self, i):
        rnd = random.Random(self.seed * 100003 + i)
        agents = []
        for _ in range(rnd.randint(5, 9)):
            track = self.simulate(rnd)
            agents.append(Agent(torch.tensor(track[:10]), torch.tensor(track[10:])[:, :2],
                                torch.tensor([rnd.uniform(3, 6), rnd.uniform(1.6, 2.4)]),
                                torch.tensor(rnd.randrange(4))))
        return agents


def keep_ragged(scenes):
    return scenes


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.kind = nn.Embedding(4, 8)
        self.enc = nn.GRU(4, hidden, batch_first=True)
        self.dec = nn.Sequential(nn.Linear(hidden + 10, 128), nn.ReLU(), nn.Linear(128, 24))

    def forward(self, history, extent, kind):
        origin = history[:, -1:, :2]
        local = torch.cat([history[..., :2] - origin, history[..., 2:]], -1)
        _, h = self.enc(local)
        out = self.dec(torch.cat([h[0], extent, self.kind(kind)], 1))
        return out.view(-1, 12, 2) + origin


def flatten(scenes):
    agents = [a for s in scenes for a in s]
    return [torch.stack(field) for field in zip(*agents)]


def run_epoch(model, loader, opt=None):
    err = n = 0
    for scenes in loader:
        history, future, extent, kind = flatten(scenes)
        with torch.set_grad_enabled(opt is not None):
            pred = model(history, extent, kind)
            loss = (pred - future).norm(dim=-1).mean()
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        err += loss.item() * len(kind)
        n += len(kind)
    return err / n


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make = lambda n, seed, shuffle: DataLoader(Scenes(n, seed), batch_size=32, shuffle=shuffle, num_workers=2,
                                               collate_fn=keep_ragged)
    train, val = make(480, 1, True), make(64, 2, False)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        tr = run_epoch(model, train, opt)
        va = run_epoch(model, val)
        print(f"[{epoch}] ade train {tr:.3f} val {va:.3f}", flush=True)


if __name__ == "__main__":
    main()
