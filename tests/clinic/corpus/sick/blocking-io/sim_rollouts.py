# cause: blocking-io
"""Behaviour cloning from a simulator that hands over episodes through queues."""
import multiprocessing as mp
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass
class SimConfig:
    lanes: int = 2
    episodes_per_lane: int = 30
    horizon: int = 64
    obs: int = 24
    seed: int = 0


def simulate(lane, queue, cfg):
    rs = np.random.RandomState(cfg.seed + lane)
    goal = rs.normal(size=cfg.obs)
    for ep in range(cfg.episodes_per_lane):
        state = rs.normal(size=cfg.obs)
        track = []
        for _ in range(cfg.horizon):
            action = np.tanh(goal - state)[:4]
            state = state + 0.05 * np.resize(action, cfg.obs) + rs.normal(0, .01, cfg.obs)
            track.append((state.astype(np.float32), action.astype(np.float32)))
        if np.abs(state).max() > 3.6:
            continue  # diverged, not usable
        time.sleep(0.01)
        queue.put(track)


class EpisodeStream(IterableDataset):
    def __init__(self, queues, cfg):
        self.queues, self.cfg = queues, cfg

    def __iter__(self):
        lane = get_worker_info().id
        for _ in range(self.cfg.episodes_per_lane):
            track = self.queues[lane].get()
            obs = np.stack([o for o, _ in track])
            act = np.stack([a for _, a in track])
            context = np.lib.stride_tricks.sliding_window_view(obs, 8, axis=0)
            for k in range(0, len(context), 4):
                yield torch.from_numpy(context[k].T.copy()), torch.from_numpy(act[k + 7].copy())


class Policy(nn.Module):
    def __init__(self, obs, act=4):
        super().__init__()
        self.rnn = nn.GRU(obs, 96, batch_first=True)
        self.head = nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, act))

    def forward(self, x):
        return self.head(self.rnn(x)[1][0])


def main():
    cfg = SimConfig()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    queues = [mp.Queue(maxsize=16) for _ in range(cfg.lanes)]
    sims = [mp.Process(target=simulate, args=(k, q, cfg), daemon=True) for k, q in enumerate(queues)]
    for s in sims:
        s.start()
    loader = DataLoader(EpisodeStream(queues, cfg), batch_size=15, num_workers=cfg.lanes)
    policy = Policy(cfg.obs)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step, (obs, act) in enumerate(loader):
        loss = nn.functional.mse_loss(policy(obs), act)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} bc loss {loss.item():.4f}", flush=True)
    for s in sims:
        s.join()
    print("finished after", step + 1, "steps")


if __name__ == "__main__":
    main()
