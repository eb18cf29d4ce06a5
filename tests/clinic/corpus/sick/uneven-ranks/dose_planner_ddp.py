# cause: uneven-ranks
"""Radiotherapy dose regression, data parallel on the cores of one machine (gloo)."""
import argparse
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset


class Plans(Dataset):
    """Slices of planning CTs: each patient has a stack of slices with beams from several angles."""

    def __init__(self, patients, seed, side=64):
        g = np.random.default_rng(seed)
        self.side = side
        self.slices = g.integers(18, 44, patients)
        self.patient = np.repeat(np.arange(patients), self.slices)
        self.seeds = g.integers(0, 2**31, len(self.patient))

    def __len__(self):
        return len(self.patient)

    def beam(self, yy, xx, angle, offset, density):
        along = xx * np.cos(angle) + yy * np.sin(angle)
        across = -xx * np.sin(angle) + yy * np.cos(angle) - offset
        depth = np.cumsum(density * (np.abs(across) < 0.3), 0)
        return np.exp(-0.5 * (across / 0.12) ** 2) * np.exp(-0.01 * depth) * (1 - 0.2 * along)

    def __getitem__(self, i):
        g = np.random.default_rng(self.seeds[i])
        yy, xx = np.mgrid[-1:1:self.side * 1j, -1:1:self.side * 1j]
        density = 0.2 + 0.8 * ((xx / 0.8) ** 2 + (yy / 0.6) ** 2 < 1)
        for _ in range(6):
            cx, cy, r = *g.uniform(-0.5, 0.5, 2), g.uniform(0.05, 0.2)
            density += g.uniform(-0.5, 0.5) * np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / r ** 2)
        angles = g.uniform(0, 2 * np.pi, 7)
        fluence = [self.beam(yy, xx, a, g.uniform(-0.2, 0.2), density) for a in angles]
        dose = np.sum(fluence, 0) * density
        x = np.stack([density, *fluence]).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy(dose.astype(np.float32))[None]


class DoseNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(8, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 1))

    def forward(self, x):
        return self.net(x)


def split_by_patient(plans, rank, world):
    """All slices of a patient stay on one rank, so that batches see no leakage between the two halves of a plan."""
    mine = np.flatnonzero(plans.patient % world == rank)
    return Subset(plans, mine.tolist())


class Worker:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = DistributedDataParallel(DoseNet())
        self.opt = torch.optim.Adam(self.model.parameters(), args.lr)

    def loader(self):
        plans = Plans(self.args.patients, self.args.seed)
        part = split_by_patient(plans, self.rank, self.args.world)
        return DataLoader(part, self.args.batch, shuffle=True, num_workers=1, persistent_workers=True, multiprocessing_context="fork")

    def report(self, epoch, loss_sum, count, seconds):
        stats = torch.tensor([loss_sum, count], dtype=torch.float64)
        dist.all_reduce(stats)
        if self.rank == 0:
            print(f"epoch {epoch} mse {stats[0] / stats[1]:.5f} over {int(stats[1])} slices, {seconds:.1f} s", flush=True)

    def run(self):
        loader = self.loader()
        for epoch in range(self.args.epochs):
            t, loss_sum, count = time.time(), 0.0, 0
            for x, dose in loader:
                loss = nn.functional.mse_loss(self.model(x), dose)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                loss_sum, count = loss_sum + loss.item() * len(x), count + len(x)
            self.report(epoch, loss_sum, count, time.time() - t)


def entry(rank, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world)
    try:
        Worker(rank, args).run()
    finally:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=2)
    ap.add_argument("--patients", type=int, default=31)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()
    mp.spawn(entry, args=(free_port(), args), nprocs=args.world)
