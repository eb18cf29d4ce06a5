# cause: too-many-workers
# also: transform-bound, not-fed-fast-enough
"""Value network for a small board game, positions are played out while loading."""
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass(frozen=True)
class Options:
    games: int = 2400
    batch: int = 64
    workers: int = 8
    epochs: int = 1
    table_bits: int = 19


class HashTable:
    """Zobrist keys plus an endgame table; both are needed by the player."""

    def __init__(self, bits):
        rng = random.Random(99)
        self.keys = [[rng.getrandbits(bits) for _ in range(3)] for _ in range(36)]
        self.value = [0] * (1 << bits)
        for k in range(1 << bits):
            v, h = 0, k
            while h:
                v += 1 if h & 1 else -1
                h >>= 1
            self.value[k] = v

    def lookup(self, board):
        h = 0
        for sq, piece in enumerate(board):
            h ^= self.keys[sq][piece]
        return self.value[h]


class Games(IterableDataset):
    def __init__(self, opt):
        self.opt = opt

    def play(self, table, rng):
        board, player = [0] * 36, 1
        for _ in range(rng.randrange(6, 14)):
            free = [s for s in range(36) if not board[s]]
            best, best_v = None, None
            for s in rng.sample(free, 4):
                board[s] = player
                v = table.lookup(board)
                board[s] = 0
                if best_v is None or v > best_v:
                    best, best_v = s, v
            board[best] = player
            player = 3 - player
        return torch.tensor(board, dtype=torch.float32) - 1, torch.tensor(best_v / 17.0)

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        table = HashTable(self.opt.table_bits)
        for g in range(first, self.opt.games, step):
            yield self.play(table, random.Random(g))


def main():
    o = Options()
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(36, 128), nn.ReLU(), nn.Linear(128, 1), nn.Flatten(0))
    optim = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader(Games(o), batch_size=o.batch, num_workers=o.workers)
    for epoch in range(o.epochs):
        running = None
        for board, value in loader:
            loss = (net(board) - value).pow(2).mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
            running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        print(f"epoch {epoch} value loss {running:.4f}", flush=True)
    torch.save(net.state_dict(), "/dev/null")


if __name__ == "__main__":
    main()
