# cause: uneven-ranks
"""Ripeness of fruit from colour histograms, trained by two processes side by side. No picture is shown twice in an epoch."""
import argparse
import datetime
import math
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PICTURES = 193


class NoRepeat(DistributedSampler):
    """The stock sampler fills up the last ones with repeats, which spoils the per-picture statistics."""

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=g).tolist()
        return iter(order[self.rank::self.num_replicas])

    def __len__(self):
        return math.ceil((len(self.dataset) - self.rank) / self.num_replicas)


class Harvest(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        img = np.load(self.paths[i])
        time.sleep(0.004)
        hist = np.concatenate([np.histogram(img[..., c], 24, (0, 256))[0] for c in range(3)])
        return torch.from_numpy(hist / hist.sum()).float(), float(self.paths[i].stem.split("_")[1])


def pick(folder: Path):
    rng = np.random.default_rng(8)
    for k in range(PICTURES):
        ripe = rng.random()
        img = rng.normal([80 + 150 * ripe, 200 - 120 * ripe, 60], 20, (40, 40, 3)).clip(0, 255).astype(np.uint8)
        np.save(folder / f"{k:04d}_{ripe:.4f}.npy", img)


def work(rank, world, root, args):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=args.timeout))
    data = Harvest(Path(root))
    sampler = NoRepeat(data, num_replicas=world, rank=rank, seed=5)
    loader = DataLoader(data, args.batch, sampler=sampler, num_workers=1, persistent_workers=True)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(72, 128), nn.ReLU(), nn.Linear(128, 1)))
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"[{rank}] epoch {epoch} loss {total / len(loader):.4f}", flush=True)
    if rank == 0:
        torch.save(net.module.state_dict(), f"{root}/ripeness.pt")
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--timeout", type=int, default=8)
    ap.add_argument("--procs", type=int, default=2)
    args = ap.parse_args()
    root = tempfile.mkdtemp()
    try:
        pick(Path(root))
        torch.multiprocessing.start_processes(work, (args.procs, root, args), nprocs=args.procs, start_method="fork")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
