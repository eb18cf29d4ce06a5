# cause: iterable-not-sharded
# also: wrong-length
"""Value network from self-play games. Games are lines of moves; positions are replayed on the fly."""
import itertools
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Board:
    """Very reduced rules: pieces slide to the target square, captures replace."""

    START = np.array([4, 2, 3, 5, 6, 3, 2, 4] + [1] * 8 + [0] * 32 + [-1] * 8 + [-4, -2, -3, -5, -6, -3, -2, -4], dtype=np.int8)

    def __init__(self):
        self.sq = self.START.copy()
        self.turn = 1

    def push(self, a, b):
        self.sq[b], self.sq[a] = self.sq[a], 0
        self.turn = -self.turn

    def planes(self):
        out = np.zeros((13, 8, 8), np.float32)
        for kind in range(1, 7):
            out[kind - 1] = (self.sq == kind).reshape(8, 8)
            out[kind + 5] = (self.sq == -kind).reshape(8, 8)
        out[12] = self.turn
        return out


def self_play(path, games, rng):
    with open(path, "w") as f:
        for _ in range(games):
            b, moves = Board(), []
            for _ply in range(int(rng.integers(20, 60))):
                own = np.flatnonzero(np.sign(b.sq) == b.turn)
                free = np.flatnonzero(np.sign(b.sq) != b.turn)
                a, t = int(rng.choice(own)), int(rng.choice(free))
                b.push(a, t)
                moves.append(f"{a}-{t}")
            result = int(np.sign(b.sq.sum()))
            f.write(f"{result} {' '.join(moves)}\n")


class GameStream(IterableDataset):
    def __init__(self, path, every=2):
        info = get_worker_info()
        self.offset, self.stride = (info.id, info.num_workers) if info is not None else (0, 1)
        self.path, self.every = path, every
        with open(path) as f:
            self.n_games = sum(1 for _ in f)

    def __len__(self):
        return self.n_games * 12

    def games(self):
        with open(self.path) as f:
            for line in itertools.islice(f, self.offset, None, self.stride):
                result, *moves = line.split()
                yield float(result), [tuple(map(int, m.split("-"))) for m in moves]

    def __iter__(self):
        for result, moves in self.games():
            b = Board()
            for ply, (src, dst) in enumerate(moves, 1):
                b.push(src, dst)
                if ply % self.every == 0:
                    planes = b.planes()
                    mobility = np.stack([np.roll(planes[:12].sum(0), s, ax) for s in (-1, 1) for ax in (0, 1)])
                    yield np.concatenate([planes, mobility]), np.float32(result)


def make_loader(path, train_cfg):
    return DataLoader(GameStream(path), batch_size=train_cfg["batch"], num_workers=train_cfg["workers"], persistent_workers=True)


if __name__ == "__main__":
    cfg = {"batch": 128, "workers": 2, "epochs": 3, "lr": 1e-3}
    torch.manual_seed(5)
    fd, path = tempfile.mkstemp(suffix=".games")
    os.close(fd)
    try:
        self_play(path, 350, np.random.default_rng(5))
        loader = make_loader(path, cfg)
        model = nn.Sequential(nn.Conv2d(17, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 8, 1), nn.ReLU(), nn.Flatten(),
                              nn.Linear(512, 1), nn.Tanh())
        opt = optim.SGD(model.parameters(), cfg["lr"], momentum=0.9)
        total = cfg["epochs"] * len(loader)
        sched = optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * min(s, total) / total)))
        for epoch in range(cfg["epochs"]):
            run = 0.0
            for step, (x, v) in enumerate(loader, 1):
                loss = (model(x).squeeze(1) - v).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                run += loss.item()
            print(f"epoch {epoch} steps {step} mse {run / step:.4f} lr {sched.get_last_lr()[0]:.2e}", flush=True)
    finally:
        os.unlink(path)
