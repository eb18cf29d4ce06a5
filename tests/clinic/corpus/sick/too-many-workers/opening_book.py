# cause: too-many-workers
"""Learning move preferences from game notation."""
import argparse
import hashlib
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FILES = "abcdefgh"
PIECES = ("", "N", "B", "R", "Q", "K")


def write_games(path, games, rng):
    with open(path, "w") as f:
        for _ in range(games):
            moves = [rng.choice(PIECES) + rng.choice(FILES) + str(rng.randrange(1, 9)) for _ in range(rng.randrange(40, 60))]
            f.write(rng.choice(["1-0", "0-1", "1/2"]) + " " + " ".join(moves) + "\n")


class Zobrist:
    """Keys for piece/square pairs and a table of hashed move pairs."""

    def __init__(self, depth):
        squares = [f + str(r) for f in FILES for r in range(1, 9)]
        self.keys = {}
        for p in PIECES:
            for s in squares:
                self.keys[p + s] = int.from_bytes(hashlib.sha256((p + s).encode()).digest()[:8], "little")
        self.pairs = {}
        names = list(self.keys)
        for a in names[:depth]:
            for b in names:
                self.pairs[a, b] = self.mix(a, b)

    @staticmethod
    def mix(a, b):
        digest = (a + ">" + b).encode()
        for _ in range(4):
            digest = hashlib.sha256(digest).digest()
        return int.from_bytes(digest[:8], "little") % 4096

    def pair(self, a, b):
        hit = self.pairs.get((a, b))
        return hit if hit is not None else self.mix(a, b)


class Tables:
    depth = 384
    current = None

    @classmethod
    def build(cls, worker_id):
        cls.current = [Zobrist(cls.depth) for _ in range(3)]


class Games(Dataset):
    RESULT = {"1-0": 0, "0-1": 1, "1/2": 2}

    def __init__(self, path):
        with open(path, "rb") as f:
            self.offsets, at = [], 0
            for line in f:
                self.offsets.append(at)
                at += len(line)
        self.path = path

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        with open(self.path, "rb") as f:
            f.seek(self.offsets[i])
            result, *moves = f.readline().decode().split()
        book = Tables.current[i % 3]
        counts = [0.0] * 4096
        for span in range(1, 40):
            for a, b in zip(moves, moves[span:]):
                counts[book.pair(a, b)] += 1.0 / span
        return torch.tensor(counts), self.RESULT[result]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--games", type=int, default=1200)
    p.add_argument("--loader-processes", type=int, default=8)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=1)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "games.txt")
        write_games(path, args.games, random.Random(3))
        loader = DataLoader(Games(path), args.batch, shuffle=True, num_workers=args.loader_processes,
                            worker_init_fn=Tables.build, persistent_workers=True)
        net = nn.Sequential(nn.Linear(4096, 32), nn.ReLU(), nn.Linear(32, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(args.epochs):
            began, total = time.time(), 0.0
            for x, y in loader:
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(loader):.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
