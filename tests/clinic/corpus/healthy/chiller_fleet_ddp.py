"""Efficiency regression for a fleet of chillers, data parallel over two processes. Each rank owns some of the chiller logs."""
import datetime
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import ConcatDataset, DataLoader, Dataset


@dataclass
class ChillerConfig:
    world_size: int = 2
    chillers: int = 5
    batch_size: int = 64
    width: int = 768
    epochs: int = 6
    lr: float = 1e-3
    port: int = 0
    log_dir: str = ""
    timeout_s: int = 60


def write_logs(cfg):
    rng = np.random.default_rng(8)
    for k in range(cfg.chillers):
        n = int(rng.integers(900, 1500))
        load = rng.weibull(2.0, n) * 8
        temp = rng.normal(10, 8, n)
        valve = np.clip(load - 11, 0, None) * 3 + rng.normal(0, 0.2, n)
        cop = np.clip((load / 12) ** 3, 0, 1) * (1 - 0.002 * temp) + rng.normal(0, 0.02, n)
        np.save(Path(cfg.log_dir) / f"chiller_{k}.npy", np.stack([load, temp, valve, cop], 1).astype(np.float32))


class ChillerLog(Dataset):
    def __init__(self, path):
        self.rows = np.load(path)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = torch.from_numpy(self.rows[i].copy())
        return (row[:3] - torch.tensor([7.0, 10.0, 2.0])) / torch.tensor([4.0, 8.0, 4.0]), row[3]


class EfficiencyCurve(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                 nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


class RankTrainer:
    def __init__(self, rank, cfg):
        self.rank, self.cfg = rank, cfg
        mine = sorted(Path(cfg.log_dir).glob("chiller_*.npy"))[rank::cfg.world_size]
        data = ConcatDataset([ChillerLog(p) for p in mine])
        self.loader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True, num_workers=1, persistent_workers=True)
        torch.manual_seed(0)
        self.model = DDP(EfficiencyCurve(cfg.width))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        print(f"rank {rank}: {[p.stem for p in mine]}", flush=True)

    def train_epoch(self):
        total, n = 0.0, 0
        with Join([self.model]):
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                total += loss.item() * len(y)
                n += len(y)
        return total / n

    def fit(self):
        for epoch in range(self.cfg.epochs):
            mse = self.train_epoch()
            dist.barrier()
            if self.rank == 0:
                torch.save(self.model.module.state_dict(), Path(self.cfg.log_dir) / "latest.pt")
                print(f"epoch {epoch}: mse {mse:.5f}", flush=True)


def worker(rank, cfg):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(cfg.port)
    dist.init_process_group("gloo", rank=rank, world_size=cfg.world_size,
                            timeout=datetime.timedelta(seconds=cfg.timeout_s))
    try:
        RankTrainer(rank, cfg).fit()
    finally:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    with tempfile.TemporaryDirectory() as tmp:
        cfg = ChillerConfig(port=free_port(), log_dir=tmp)
        write_logs(cfg)
        mp.spawn(worker, args=(cfg,), nprocs=cfg.world_size)


if __name__ == "__main__":
    main()
