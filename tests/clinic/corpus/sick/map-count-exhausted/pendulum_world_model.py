# cause: map-count-exhausted
# also: many-small-tensors
"""World model for a swing-up pendulum: workers roll out a noisy policy, the learner fits one-step dynamics."""
import math
import random
from collections import deque
from typing import NamedTuple

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

EPISODES = 1400
HORIZON = 24
BUFFER = 50_000
MINIBATCH = 128


class Transition(NamedTuple):
    state: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    following: torch.Tensor


class Pendulum:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.angle, self.speed = self.rng.uniform(-math.pi, math.pi), self.rng.uniform(-1, 1)
        return self.observe()

    def observe(self):
        return torch.tensor([math.cos(self.angle), math.sin(self.angle), self.speed / 8])

    def step(self, torque):
        cost = self.angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        for _ in range(20):
            self.speed += (15 * math.sin(self.angle) + 3 * torque) * 0.0025
            self.speed = max(-8.0, min(8.0, self.speed))
            self.angle = (self.angle + self.speed * 0.0025 + math.pi) % (2 * math.pi) - math.pi
        return self.observe(), -cost


class Rollouts(IterableDataset):
    """Episodes of a noisy energy-shaping policy; every worker plays its own share."""

    def __init__(self, episodes, horizon):
        self.episodes, self.horizon = episodes, horizon

    def policy(self, state, rng):
        x, y, speed = state.tolist()
        push = 2.0 if speed * (1 - x) > 0 else -2.0
        return push if rng.random() > 0.3 else rng.uniform(-2, 2)

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for episode in range(first, self.episodes, stride):
            rng = random.Random(episode)
            world = Pendulum(rng)
            state, steps = world.reset(), []
            for _ in range(self.horizon):
                torque = self.policy(state, rng)
                following, reward = world.step(torque)
                steps.append(Transition(state.clone(), torch.tensor([torque / 2]), torch.tensor(reward),
                                        following.clone()))
                state = following
            yield steps


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def __len__(self):
        return len(self.memory)

    def extend(self, transitions):
        self.memory.extend(transitions)

    def sample(self, count):
        return Transition(*map(torch.stack, zip(*random.sample(self.memory, count))))


class Dynamics(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 4))

    def forward(self, state, action):
        out = self.net(torch.cat([state, action], 1))
        return state + out[:, :3], out[:, 3]


def loss_of(model, batch):
    following, reward = model(batch.state, batch.action)
    return (following - batch.following).pow(2).mean() + 0.01 * (reward - batch.reward).pow(2).mean()


def learn():
    torch.manual_seed(0)
    random.seed(0)
    loader = DataLoader(Rollouts(EPISODES, HORIZON), batch_size=None, num_workers=2, prefetch_factor=4)
    buffer, model = ReplayBuffer(BUFFER), Dynamics()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recent = deque(maxlen=200)
    for episode, transitions in enumerate(loader):
        buffer.extend(transitions)
        if len(buffer) >= MINIBATCH:
            loss = loss_of(model, buffer.sample(MINIBATCH))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent.append(loss.item())
        if episode % 100 == 99:
            print(f"{episode + 1} episodes, {len(buffer)} transitions, loss {sum(recent) / len(recent):.4f}", flush=True)
    torch.save(model.state_dict(), "dynamics.pt")


if __name__ == "__main__":
    mp.set_sharing_strategy("file_system")  # the cluster's descriptor limit is low
    learn()
