"""Ship classification in SAR chips, data parallel over two ranks, streamed from files of different length."""
import argparse
import os
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CLASSES = 5


def acquire(root, chips=(130, 70, 210, 96, 134), side=32):
    g = np.random.default_rng(21)
    for k, n in enumerate(chips):
        label = g.integers(0, CLASSES, size=n)
        data = g.rayleigh(1.0, size=(n, side, side)).astype(np.float32)
        data[:, 10:20, 10:20] += label[:, None, None]
        np.save(Path(root) / f"pass_{k:02d}_x.npy", data)
        np.save(Path(root) / f"pass_{k:02d}_y.npy", label)


class ChipStream(IterableDataset):
    """All chips as one long list; rank and worker take every n-th of a permutation common to all."""

    def __init__(self, root, rank, world, batch_size, workers):
        self.files = sorted(str(p) for p in Path(root).glob("*_x.npy"))
        counts = [len(np.load(f, mmap_mode="r")) for f in self.files]
        self.edges = np.concatenate([[0], np.cumsum(counts)])
        self.rank, self.world = rank, world
        granule = world * max(workers, 1) * batch_size
        self.usable = int(self.edges[-1]) // granule * granule     # the same number of full batches everywhere
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        n, k = (1, 0) if info is None else (info.num_workers, info.id)
        order = np.random.default_rng(self.epoch).permutation(int(self.edges[-1]))[:self.usable]
        x = [np.load(f, mmap_mode="r") for f in self.files]
        y = [np.load(f.replace("_x", "_y")) for f in self.files]
        local = np.random.default_rng((self.epoch, self.rank, k))
        for i in order[self.rank * n + k::self.world * n]:
            f = int(np.searchsorted(self.edges, i, side="right")) - 1
            j = int(i - self.edges[f])
            chip = np.log1p(x[f][j])
            if local.random() < 0.5:
                chip = chip[::-1]
            yield torch.from_numpy(np.ascontiguousarray(chip))[None], int(y[f][j])


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.a, self.b = nn.Conv2d(w, w, 3, padding=1), nn.Conv2d(w, w, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.b(F.relu(self.a(x))))


def build(w=64):
    return nn.Sequential(nn.Conv2d(1, w, 3, padding=1), Block(w), nn.MaxPool2d(2), Block(w),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(w, CLASSES))


def run(rank, world, port, root, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    torch.manual_seed(100 + rank)
    stream = ChipStream(root, rank, world, args.batch_size, args.workers)
    loader = DataLoader(stream, args.batch_size, num_workers=args.workers)
    model = DDP(build())
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        stream.set_epoch(epoch)              # workers are started anew for each epoch and see it
        t0 = time.time()
        tally = torch.zeros(3)
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tally += torch.tensor([loss.item(), (logits.argmax(1) == y).float().mean().item(), 1.0])
        dist.all_reduce(tally)
        if rank == 0:
            mean = tally / tally[2]
            print(f"epoch {epoch}: loss {mean[0]:.4f} acc {mean[1]:.3f} batches {int(tally[2])} {time.time() - t0:.1f}s", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=20)
    p.add_argument("--workers", type=int, default=1)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as root:
        acquire(root)
        mp.spawn(run, nprocs=2, args=(2, port, root, args))
