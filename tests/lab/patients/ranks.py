"""Two ranks with a different number of batches: one waits for the other for ever."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def train(rank, path):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    loader = DataLoader(TensorDataset(torch.arange(16.0 + 8 * rank)), batch_size=4, num_workers=1)
    for (batch,) in loader:
        total = batch.sum()
        dist.all_reduce(total)
    if sys.argv[1] == "barrier":
        dist.barrier()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, args=(f"{folder}/store",), nprocs=2, start_method="fork")
