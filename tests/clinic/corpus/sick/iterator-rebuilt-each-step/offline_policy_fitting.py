# cause: iterator-rebuilt-each-step
"""Offline reinforcement learning: conservative Q-learning on logged frames of a grid robot."""
import argparse
import copy
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

SIDE = 40


class FrameLog:
    """All frames of the logged episodes, deflated, in one buffer."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        chunks, where = [], rng.integers(4, SIDE - 4, 2)
        for _ in range(count):
            where = np.clip(where + rng.integers(-2, 3, 2), 3, SIDE - 4)
            frame = rng.integers(0, 24, (3, SIDE, SIDE)).astype(np.uint8)
            frame[0, where[0] - 2:where[0] + 3, where[1] - 2:where[1] + 3] = 255
            chunks.append(zlib.compress(frame.tobytes(), 1))
        self.bounds = np.concatenate([[0], np.cumsum([len(c) for c in chunks])])
        self.blob = np.frombuffer(b"".join(chunks), dtype=np.uint8)

    def __len__(self):
        return len(self.bounds) - 1

    def frame(self, index):
        packed = self.blob[self.bounds[index]:self.bounds[index + 1]].tobytes()
        return np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(3, SIDE, SIDE)


class Transitions(Dataset):
    def __init__(self, count, seed):
        self.log = FrameLog(count, seed)
        rng = np.random.default_rng(seed + 1)
        self.actions = rng.integers(0, 5, count)
        self.rewards = rng.normal(0, 1, count).astype(np.float32)

    def __len__(self):
        return len(self.log) - 4

    def observe(self, index):
        stack = np.concatenate([self.log.frame(index + k) for k in range(3)]).astype(np.float32)
        pad = np.pad(stack, ((0, 0), (3, 3), (3, 3)), mode="edge")
        dy, dx = np.random.randint(0, 7, 2)
        crop = pad[:, dy:dy + SIDE, dx:dx + SIDE]
        return torch.from_numpy((crop - crop.mean()) / (crop.std() + 1e-3))

    def __getitem__(self, index):
        return self.observe(index), int(self.actions[index]), self.rewards[index], self.observe(index + 1)


class Replay:
    """The agent's view of the log: `replay.sample` is always a fresh random minibatch."""

    def __init__(self, dataset, batch_size, workers):
        self.loader = DataLoader(dataset, batch_size, sampler=RandomSampler(dataset, replacement=True), num_workers=workers, drop_last=True)

    def _batches(self):
        yield from self.loader

    @property
    def sample(self):
        return next(self._batches())


def q_network():
    return nn.Sequential(nn.Conv2d(9, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))


class Agent:
    def __init__(self, lr, gamma=0.97, conservatism=0.5):
        self.online = q_network()
        self.online(torch.zeros(1, 9, SIDE, SIDE))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=lr)
        self.gamma, self.conservatism = gamma, conservatism

    def update(self, before, action, reward, after):
        values = self.online(before)
        chosen = values.gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            goal = reward + self.gamma * self.target(after).max(1).values
        loss = F.smooth_l1_loss(chosen, goal) + self.conservatism * (values.logsumexp(1) - chosen).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sync(self, rate=0.05):
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.online.parameters()):
                slow.lerp_(fast, rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--frames", type=int, default=2500)
    parser.add_argument("--report", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    replay = Replay(Transitions(args.frames, seed=5), args.batch_size, args.workers)
    agent = Agent(lr=5e-4)
    losses, clock = [], time.perf_counter()
    for step in range(1, args.steps + 1):
        losses.append(agent.update(*replay.sample))
        agent.sync()
        if step % args.report == 0:
            rate = args.report * args.batch_size / (time.perf_counter() - clock)
            print(f"step {step}: loss {np.mean(losses[-args.report:]):.4f} ({rate:.0f} transitions/s)", flush=True)
            clock = time.perf_counter()


if __name__ == "__main__":
    main()
