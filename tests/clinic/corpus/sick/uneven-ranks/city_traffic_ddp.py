# cause: uneven-ranks
"""Traffic speed forecast for several cities, data parallel over two processes on one machine (gloo)."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import ConcatDataset, DataLoader, Dataset

CITIES = {"basel": 410, "delft": 395, "graz": 455, "lund": 260, "porto": 430, "vilnius": 320}
HISTORY, AHEAD, SENSORS = 96, 12, 24


class CityWindows(Dataset):
    def __init__(self, name, hours):
        self.name, self.hours = name, hours
        self.code = sum(map(ord, name))

    def __len__(self):
        return self.hours - HISTORY - AHEAD

    def speeds(self):
        rng = np.random.default_rng(self.code)
        t = np.arange(self.hours)
        rush = np.exp(-0.5 * ((t % 24 - 8) / 1.5) ** 2) + np.exp(-0.5 * ((t % 24 - 17.5) / 2) ** 2)
        return 60 - 30 * rush[:, None] * rng.uniform(0.3, 1, SENSORS) + rng.normal(0, 3, (self.hours, SENSORS))

    def __getitem__(self, start):
        window = self.speeds()[start:start + HISTORY + AHEAD]
        past, future = window[:HISTORY], window[HISTORY:]
        lagged = np.stack([np.corrcoef(past[lag:].T, past[:HISTORY - lag].T)[:SENSORS, SENSORS:] for lag in range(1, 25)])
        influence = lagged.max(0)
        smooth = (influence / influence.sum(1, keepdims=True)) @ past.T
        x = np.concatenate([past.T, smooth], axis=1) / 60
        return torch.from_numpy(x.astype("f4")), torch.from_numpy((future.T / 60).astype("f4"))


class Forecaster(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * HISTORY, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                 nn.Linear(width, AHEAD))

    def forward(self, x):
        return self.net(x)


def cities_of(rank, world):
    return [name for k, name in enumerate(sorted(CITIES)) if k % world == rank]


def save(model, path):
    torch.save(model.state_dict(), path + ".part")
    os.replace(path + ".part", path)


def evaluate(path, cities, patience=0.1):
    while not os.path.exists(path):
        time.sleep(patience)
    model = Forecaster()
    model.load_state_dict(torch.load(path))
    errors = {}
    with torch.no_grad():
        for name in cities:
            x, y = zip(*(CityWindows(name, CITIES[name])[k] for k in range(0, 100, 20)))
            errors[name] = 60 * (model(torch.stack(x)) - torch.stack(y)).abs().mean().item()
    return ", ".join(f"{name} {error:.1f} km/h" for name, error in errors.items())


def train(rank, world, folder, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    torch.manual_seed(0)
    mine = cities_of(rank, world)
    dataset = ConcatDataset([CityWindows(name, CITIES[name]) for name in mine])
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True, num_workers=1,
                        multiprocessing_context="fork",
                        persistent_workers=True)
    model = DistributedDataParallel(Forecaster())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    print(f"process {rank}: {', '.join(mine)}", flush=True)
    for epoch in range(args.epochs):
        total, count = 0.0, 0
        for x, y in loader:
            loss = nn.functional.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
            if rank == 0 and count % 10 == 0:
                print(f"epoch {epoch} step {count} loss {total / count:.4f}", flush=True)
        checkpoint = os.path.join(folder, f"epoch{epoch}.pt")
        if rank == 0:
            save(model.module, checkpoint)
        print(f"epoch {epoch} process {rank}: loss {total / count:.4f}, {evaluate(checkpoint, mine)}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(args.processes, folder, args), nprocs=args.processes)


if __name__ == "__main__":
    main()
