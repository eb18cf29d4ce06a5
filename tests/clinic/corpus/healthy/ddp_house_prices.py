"""Two-rank data-parallel regression of house prices (gloo)."""
import os
import socket
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    world: int = 2
    rows: int = 12001
    batch: int = 250
    epochs: int = 8
    lr: float = 1e-3
    port: int = 0


class HouseTable(Dataset):
    def __init__(self, rows, seed=11):
        g = np.random.default_rng(seed)
        self.x = g.normal(size=(rows, 24)).astype(np.float32)
        w = g.normal(size=24).astype(np.float32)
        self.y = (self.x @ w + 0.3 * np.sin(self.x[:, 0] * 3)).astype(np.float32)
        self.knots = np.linspace(-3, 3, 16, dtype=np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        # radial features per column
        row = self.x[i]
        feats = np.exp(-(row[:, None] - self.knots) ** 2).ravel()
        return torch.from_numpy(np.concatenate([row, feats])), torch.tensor(self.y[i])


def build_model():
    return nn.Sequential(nn.Linear(24 * 17, 1536), nn.GELU(), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 1))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_rank(rank, cfg):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(cfg.port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=cfg.world)
    torch.manual_seed(7)
    data = HouseTable(cfg.rows)
    sampler = DistributedSampler(data, cfg.world, rank, shuffle=True, seed=5)
    # 12001 rows: the sampler pads the odd one, so both ranks see the same number of batches
    loader = DataLoader(data, cfg.batch, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DDP(build_model())
    opt = torch.optim.AdamW(model.parameters(), cfg.lr)
    try:
        for epoch in range(cfg.epochs):
            sampler.set_epoch(epoch)
            total, seen, wait, tick = 0.0, 0, 0.0, time.time()
            start = tick
            for x, y in loader:
                wait += time.time() - tick
                loss = nn.functional.smooth_l1_loss(model(x).squeeze(1), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item() * len(x)
                seen += len(x)
                tick = time.time()
            stat = torch.tensor([total, float(seen)])
            dist.all_reduce(stat)
            if rank == 0:
                print(f"epoch {epoch}: loss {stat[0] / stat[1]:.4f} rows {int(stat[1])} "
                      f"{time.time() - start:.1f}s wait {wait:.2f}s", flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    cfg = Config(port=free_port())
    mp.spawn(run_rank, args=(cfg,), nprocs=cfg.world, join=True)
