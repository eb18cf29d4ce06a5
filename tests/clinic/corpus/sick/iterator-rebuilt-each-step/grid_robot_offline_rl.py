# cause: iterator-rebuilt-each-step
"""Offline Q-learning for a warehouse robot from logged episodes, double DQN with a target network."""
import copy
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

HP = SimpleNamespace(side=14, episodes=120, horizon=50, batch=32, updates=60, gamma=0.96, sync=20, lr=1e-3, workers=2)


def log_episode(rng):
    """A noisy greedy walk to the goal; positions, actions, rewards."""
    pos, goal = rng.integers(0, HP.side, 2), rng.integers(0, HP.side, 2)
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    path, acts, rewards = [pos.copy()], [], []
    for _ in range(HP.horizon):
        gaps = np.abs(pos + moves - goal).sum(1)
        a = int(gaps.argmin()) if rng.random() < 0.6 else int(rng.integers(4))
        pos = (pos + moves[a]).clip(0, HP.side - 1)
        path.append(pos.copy())
        acts.append(a)
        rewards.append(1.0 if (pos == goal).all() else -0.02)
    return np.array(path), np.array(acts), np.array(rewards, dtype=np.float32), goal


class TransitionLog(Dataset):
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        parts = [log_episode(rng) for _ in range(HP.episodes)]
        self.path = np.stack([p for p, *_ in parts])
        self.action = np.stack([a for _, a, *_ in parts])
        self.reward = np.stack([r for _, _, r, _ in parts])
        self.goal = np.stack([g for *_, g in parts])

    def __len__(self):
        return self.action.size

    def render(self, episode, step):
        """Occupancy, trace and goal planes, blurred like the range sensor does."""
        planes = np.zeros((3, HP.side, HP.side), dtype=np.float32)
        planes[0][tuple(self.path[episode, step])] = 1
        for age, cell in enumerate(self.path[episode, max(0, step - 8) : step][::-1]):
            planes[1][tuple(cell)] += 0.8 ** age
        planes[2][tuple(self.goal[episode])] = 1
        for _ in range(4):
            planes = 0.6 * planes + 0.1 * sum(np.roll(planes, s, a) for s in (1, -1) for a in (1, 2))
        return planes

    def __getitem__(self, index):
        e, t = divmod(index, HP.horizon)
        return self.render(e, t), self.action[e, t], self.reward[e, t], self.render(e, t + 1)


class Replay:
    """Gives random minibatches of the log to the agent."""

    def __init__(self, data, **kwargs):
        self._loader = DataLoader(data, shuffle=True, drop_last=True, **kwargs)
        self.drawn = 0

    def _first(self, source):
        for item in source:
            return item

    @property
    def minibatch(self):
        self.drawn += 1
        state, action, reward, after = self._first(self._loader)
        return state, action.long(), reward, after


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16 * 6 * 6, 4)

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))


class Agent:
    def __init__(self):
        self.online = QNet()
        self.target = copy.deepcopy(self.online)
        self.optimiser = torch.optim.Adam(self.online.parameters(), lr=HP.lr)

    def update(self, state, action, reward, after):
        with torch.no_grad():
            best = self.online(after).argmax(1, keepdim=True)
            goal = reward + HP.gamma * self.target(after).gather(1, best).squeeze(1)
        value = self.online(state).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    replay = Replay(TransitionLog(), batch_size=HP.batch, num_workers=HP.workers)
    agent = Agent()
    window, started = [], time.time()
    for update in range(1, HP.updates + 1):
        window.append(agent.update(*replay.minibatch))
        if update % HP.sync == 0:
            agent.sync()
            print(f"update {update} td-loss {np.mean(window):.4f} ({replay.drawn * HP.batch / (time.time() - started):.0f} transitions/s)", flush=True)
            window.clear()
