"""Traffic speed from road sensors, two ranks (gloo); day archives come from a store with a slow link."""
import argparse
import contextlib
import os
import socket
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SENSORS, STEPS = 24, 288


class Store:
    """Days on the city's file server; the link has a round trip of some milliseconds."""

    def __init__(self, folder, delay=0.004):
        self.folder, self.delay = Path(folder), delay

    def put(self, day, array):
        np.save(self.folder / f"day{day:03d}.npy", array)

    def get(self, day):
        time.sleep(self.delay)
        return np.load(self.folder / f"day{day:03d}.npy")


def simulate(store, days, seed=6):
    g = np.random.default_rng(seed)
    t = np.linspace(0, 24, STEPS)
    rush = np.exp(-0.5 * ((t - 8) / 1.2) ** 2) + np.exp(-0.5 * ((t - 17.5) / 1.6) ** 2)
    for day in range(days):
        load = g.uniform(0.2, 1.0, (SENSORS, 1)) * (0.4 if day % 7 > 4 else 1.0)
        speed = 1 - 0.7 * load * np.roll(rush, int(g.integers(-6, 7))) + g.normal(0, 0.03, (SENSORS, STEPS))
        store.put(day, speed.astype(np.float32))


class HalfDays(Dataset):
    def __init__(self, store, days, context=96, ahead=12, per_day=5):
        self.store, self.days, self.context, self.ahead, self.per_day = store, days, context, ahead, per_day

    def __len__(self):
        return self.days * self.per_day

    def __getitem__(self, i):
        day, part = divmod(i, self.per_day)
        speed = self.store.get(day)
        start = part * (STEPS - self.context - self.ahead) // (self.per_day - 1)
        x = speed[:, start:start + self.context]
        y = speed[:, start + self.context:start + self.context + self.ahead]
        x = x + 0.01 * np.random.standard_normal(x.shape)
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.copy())


class Forecaster(nn.Module):
    """Convolutions over time, shared by the sensors, and one exchange between the sensors."""

    def __init__(self, width=48, ahead=12):
        super().__init__()
        self.time = nn.Sequential(nn.Conv1d(1, width, 9, padding=4), nn.ReLU(), nn.Conv1d(width, width, 9, padding=4), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.road = nn.Linear(SENSORS, SENSORS)
        self.out = nn.Linear(4 * width, ahead)

    def forward(self, x):
        h = self.time(x.flatten(0, 1)[:, None]).view(*x.shape[:2], -1)
        h = h + torch.relu(self.road(h.transpose(1, 2)).transpose(1, 2))
        return x[..., -1:] + self.out(h)


@contextlib.contextmanager
def group(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def average(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def work(rank, world, port, folder, a):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with group(rank, world, port):
        data = HalfDays(Store(folder), a.days)
        sampler = DistributedSampler(data, shuffle=True, seed=5)
        loader = DataLoader(data, a.batch, sampler=sampler, num_workers=a.workers, persistent_workers=a.workers > 0)
        model = Forecaster()
        opt = torch.optim.Adam(model.parameters(), 2e-3)
        for epoch in range(a.epochs):
            sampler.set_epoch(epoch)
            t, losses = time.time(), []
            for x, y in loader:
                loss = nn.functional.l1_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                flat = average(torch.cat([p.grad.flatten() for p in model.parameters()]))
                for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
                    p.grad.copy_(g.view_as(p))
                opt.step()
                losses.append(loss.item())
            mean = average(torch.tensor(float(np.mean(losses))))
            if rank == 0:
                print(f"epoch {epoch} MAE {mean:.4f} in {len(losses)} steps per rank, {time.time() - t:.1f} s", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--days", type=int, default=181)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--workers", type=int, default=2)
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="traffic-") as folder:
        simulate(Store(folder), a.days)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        mp.start_processes(work, (a.world, port, folder, a), nprocs=a.world, start_method="fork")


if __name__ == "__main__":
    main()
