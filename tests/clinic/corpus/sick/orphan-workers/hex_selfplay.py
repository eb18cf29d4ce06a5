# cause: orphan-workers
# arguments: --walltime 18
"""Value network for Hex on a small board; every sample is a Monte-Carlo evaluated self-play position. Runs inside a queue slot of fixed length."""
import argparse
import os
import random
import sys
import tempfile
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 7


def neighbours(c):
    r, q = divmod(c, SIDE)
    for dr, dq in ((0, 1), (1, 0), (1, -1), (0, -1), (-1, 0), (-1, 1)):
        if 0 <= r + dr < SIDE and 0 <= q + dq < SIDE:
            yield (r + dr) * SIDE + q + dq


LINKS = [list(neighbours(c)) for c in range(SIDE * SIDE)]


def first_wins(board):
    todo = [c for c in range(SIDE) if board[c] == 1]
    seen = set(todo)
    while todo:
        c = todo.pop()
        if c >= SIDE * (SIDE - 1):
            return True
        for n in LINKS[c]:
            if board[n] == 1 and n not in seen:
                seen.add(n)
                todo.append(n)
    return False


def playout(board, rnd):
    empty = [c for c, v in enumerate(board) if not v]
    rnd.shuffle(empty)
    b = list(board)
    for k, c in enumerate(empty):
        b[c] = 1 if k % 2 == 0 else -1
    return first_wins(b)


class SelfPlay(Dataset):
    def __init__(self, positions, rollouts):
        self.positions, self.rollouts = positions, rollouts

    def __len__(self):
        return self.positions

    def __getitem__(self, i):
        rnd = random.Random(i)
        board = [0] * (SIDE * SIDE)
        for k, c in enumerate(rnd.sample(range(SIDE * SIDE), rnd.randrange(4, 16) * 2)):
            board[c] = 1 if k % 2 == 0 else -1
        value = sum(playout(board, rnd) for _ in range(self.rollouts)) / self.rollouts
        return torch.tensor(board, dtype=torch.float32), torch.tensor(value)


class SlotGuard:
    """Saves the network and leaves before the scheduler takes the node away."""

    def __init__(self, seconds, net, path):
        self.net, self.path = net, path
        self.timer = threading.Timer(seconds, self.leave)
        self.timer.daemon = True
        self.timer.start()

    def leave(self):
        torch.save(self.net.state_dict(), self.path)
        print("slot is over, checkpoint written", flush=True)
        os.unlink(self.path)
        sys.stdout.flush()
        os._exit(0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--walltime", type=float, default=60)
    ap.add_argument("--rollouts", type=int, default=12000)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(SIDE * SIDE, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid(), nn.Flatten(0))
    fd, path = tempfile.mkstemp(suffix=".pt")
    os.close(fd)
    SlotGuard(a.walltime, net, path)
    loader = DataLoader(SelfPlay(4000, a.rollouts), batch_size=16, num_workers=a.workers, prefetch_factor=4)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    start = time.time()
    for step, (board, value) in enumerate(loader):
        loss = nn.functional.mse_loss(net(board), value)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{time.time() - start:5.1f}s step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
