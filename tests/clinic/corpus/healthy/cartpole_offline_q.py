# limits: shm=64M nofile=256
"""Offline Q-learning on a cart-pole: workers simulate, the learner keeps everything in a ring of its own."""
import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class CartPoles:
    """Many cart-poles at once."""

    def __init__(self, count, rng):
        self.state = rng.uniform(-0.05, 0.05, (count, 4))
        self.rng = rng

    def step(self, push):
        x, v, a, w = self.state.T
        force = np.where(push == 1, 10.0, -10.0)
        for _ in range(8):
            drag = (force + 0.05 * w**2 * np.sin(a)) / 1.1
            turn = (9.8 * np.sin(a) - np.cos(a) * drag) / (0.5 * (4 / 3 - 0.1 * np.cos(a) ** 2 / 1.1))
            speed = drag - 0.05 * turn * np.cos(a) / 1.1
            x, v, a, w = x + 0.0025 * v, v + 0.0025 * speed, a + 0.0025 * w, w + 0.0025 * turn
        self.state = np.stack([x, v, a, w], 1)
        fallen = (np.abs(x) > 2.4) | (np.abs(a) > 12 * math.pi / 180)
        before = self.state.copy()
        self.state[fallen] = self.rng.uniform(-0.05, 0.05, (fallen.sum(), 4))
        return before, fallen


class Experience(IterableDataset):
    """Blocks of experience. Each worker makes every n-th block; a block's seed is its epoch and number."""

    def __init__(self, blocks, poles, horizon):
        self.blocks, self.poles, self.horizon = blocks, poles, horizon
        self.round = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch):
        self.round.fill_(epoch)

    def __len__(self):
        return self.blocks

    def __iter__(self):
        info = get_worker_info()
        start, stride = (info.id, info.num_workers) if info else (0, 1)
        epoch = int(self.round)
        for number in range(start, self.blocks, stride):
            rng = np.random.default_rng([epoch, number])
            world = CartPoles(self.poles, rng)
            rows = []
            for _ in range(self.horizon):
                state = world.state
                lean = state[:, 2] + 0.3 * state[:, 3]
                push = np.where(rng.random(self.poles) < 0.3, rng.integers(0, 2, self.poles), lean > 0).astype(int)
                following, fallen = world.step(push)
                rows.append(np.concatenate([state, push[:, None], following, fallen[:, None]], 1))
            yield torch.from_numpy(np.concatenate(rows).astype(np.float32))


class Ring:
    def __init__(self, size, width):
        self.rows, self.used, self.at = torch.zeros(size, width), 0, 0

    def extend(self, rows):
        where = torch.arange(self.at, self.at + len(rows)) % len(self.rows)
        self.rows[where] = rows
        self.at = (self.at + len(rows)) % len(self.rows)
        self.used = min(len(self.rows), self.used + len(rows))

    def sample(self, count):
        return self.rows[torch.randint(self.used, (count,))].split([4, 1, 4, 1], 1)


def q_loss(online, target, batch, discount=0.98):
    state, push, following, fallen = batch
    now = online(state).gather(1, push.long())
    with torch.no_grad():
        later = target(following).max(1, keepdim=True).values
    return nn.functional.smooth_l1_loss(now, 1 - fallen + discount * (1 - fallen) * later)


def network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    source = Experience(args.blocks, poles=48, horizon=60)
    loader = DataLoader(source, batch_size=None, num_workers=args.workers, persistent_workers=args.workers > 0,
                        prefetch_factor=12 if args.workers else None)
    ring, online, target = Ring(100_000, 10), network(), network()
    optimizer = torch.optim.Adam(online.parameters(), 1e-3)
    for epoch in range(args.epochs):
        source.set_epoch(epoch)
        target.load_state_dict(online.state_dict())
        began, losses = time.time(), []
        for rows in loader:
            ring.extend(rows)
            for _ in range(4):
                loss = q_loss(online, target, ring.sample(256))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {np.mean(losses):.4f}, {ring.used} rows, {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
