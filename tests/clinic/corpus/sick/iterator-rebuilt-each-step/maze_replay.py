# cause: iterator-rebuilt-each-step
"""Offline Q-learning on logged maze episodes."""
import gzip
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, WeightedRandomSampler

CONFIG = {
    "replay": {"episodes": 150, "length": 60, "side": 12},
    "loader": {"num_workers": 2, "batch": 32},
    "optim": {"lr": 1e-3, "gamma": 0.95},
    "steps": 90,
    "sync_every": 20,
}


def simulate(folder, episodes, length, side):
    rng = np.random.default_rng(9)
    for e in range(episodes):
        walls = rng.random((side, side)) < 0.2
        pos, rows = rng.integers(0, side, 2), []
        for _ in range(length):
            action = int(rng.integers(4))
            move = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)][action])
            new = np.clip(pos + move, 0, side - 1)
            reward = float((new == side - 1).all()) - 0.1 * float(walls[tuple(new)])
            rows.append((pos.copy(), action, reward, new.copy()))
            pos = new
        with gzip.open(folder / f"ep{e:04d}.pkl.gz", "wb", compresslevel=1) as f:
            pickle.dump((walls, rows), f)


class LoggedEpisodes(Dataset):
    def __init__(self, folder, length, side):
        self.files = sorted(folder.iterdir())
        self.length, self.side = length, side

    def __len__(self):
        return len(self.files) * self.length

    def plane(self, walls, pos):
        board = np.zeros((2, self.side, self.side), dtype=np.float32)
        board[0] = walls
        board[1][tuple(pos)] = 1
        return torch.from_numpy(board)

    def __getitem__(self, i):
        file, t = divmod(i, self.length)
        with gzip.open(self.files[file], "rb") as f:
            walls, rows = pickle.load(f)
        pos, action, reward, new = rows[t]
        return self.plane(walls, pos), action, torch.tensor(reward), self.plane(walls, new)


class Replay:
    def __init__(self, dataset, batch, num_workers):
        weights = torch.linspace(0.5, 1.5, len(dataset))
        order = WeightedRandomSampler(weights, len(dataset), replacement=True)
        self.stream = DataLoader(dataset, batch_sampler=BatchSampler(order, batch, True), num_workers=num_workers)

    def sample(self):
        for transition in self.stream:
            return transition


class QNet(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(2 * side * side, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        return self.net(x)


class Learner:
    def __init__(self, config, replay):
        self.config, self.replay = config, replay
        side = config["replay"]["side"]
        self.online, self.target = QNet(side), QNet(side)
        self.sync()
        self.opt = torch.optim.Adam(self.online.parameters(), lr=config["optim"]["lr"])

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())

    def update(self):
        s, a, r, s2 = self.replay.sample()
        with torch.no_grad():
            goal = r + self.config["optim"]["gamma"] * self.target(s2).max(1).values
        loss = nn.functional.smooth_l1_loss(self.online(s).gather(1, a[:, None]).squeeze(1), goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def learn(self):
        began = time.time()
        for step in range(1, self.config["steps"] + 1):
            loss = self.update()
            if step % self.config["sync_every"] == 0:
                self.sync()
                print(f"update {step}: td {loss:.4f}, {step / (time.time() - began):.1f} updates/s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(2)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        settings = CONFIG["replay"]
        simulate(Path(tmp), **settings)
        data = LoggedEpisodes(Path(tmp), settings["length"], settings["side"])
        Learner(CONFIG, Replay(data, **CONFIG["loader"])).learn()
