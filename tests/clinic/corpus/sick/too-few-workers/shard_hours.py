# cause: too-few-workers
"""Solar output forecasting, streaming hourly blocks from a data lake."""
import dataclasses
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclasses.dataclass(frozen=True)
class Settings:
    plants: int = 24
    blocks: int = 14
    window: int = 48
    latency: float = 0.018
    batch: int = 8
    replicas: int = 2
    lr: float = 2e-3

    @property
    def readers(self):
        return max(1, (os.cpu_count() or 1) // self.replicas)


class Lake:
    """Object storage: every block is a request of its own."""

    def __init__(self, latency):
        self.latency = latency

    def block(self, plant, n, hours):
        time.sleep(self.latency)
        rng = np.random.default_rng(plant * 1000 + n)
        t = np.arange(hours) + n * hours
        cloud = rng.random(hours).cumsum() % 1
        return np.stack([np.sin(t / 24 * 2 * np.pi).clip(0), cloud, np.sin(t / 24 * 2 * np.pi).clip(0) * (1 - 0.6 * cloud)])


class Hours(IterableDataset):
    def __init__(self, lake, s):
        self.lake, self.s = lake, s

    def __len__(self):
        return self.s.plants * self.s.blocks

    def __iter__(self):
        me = get_worker_info()
        start, step = (me.id, me.num_workers) if me else (0, 1)
        for plant in range(start, self.s.plants, step):
            for n in range(self.s.blocks):
                block = self.lake.block(plant, n, self.s.window + 1).astype(np.float32)
                yield torch.from_numpy(block[:, :-1].copy()), torch.tensor(block[2, -1])


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.rnn(x.transpose(1, 2))[0][:, -1])[:, 0]


def fit(s):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Hours(Lake(s.latency), s), batch_size=s.batch, num_workers=s.readers)
    net = Forecaster()
    opt = torch.optim.AdamW(net.parameters(), s.lr)
    began = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.l1_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 8 == 0:
            print(f"step {step}: mae {loss.item():.4f}, {(step + 1) * s.batch / (time.time() - began):.0f} windows/s", flush=True)
    print(f"total {time.time() - began:.1f}s")


if __name__ == "__main__":
    fit(Settings())
