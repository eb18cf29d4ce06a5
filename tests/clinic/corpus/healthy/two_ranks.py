"""Two local processes, DistributedDataParallel over gloo."""
import os
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Spectra(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        freq = rng.uniform(1, 40)
        x = np.sin(np.linspace(0, freq, 4096)) + rng.normal(0, .3, 4096)
        for _ in range(6):
            x = np.fft.irfft(np.fft.rfft(x) * np.linspace(1, .2, 2049))
        return torch.from_numpy(np.abs(np.fft.rfft(x))[:512].astype(np.float32)).log1p(), torch.tensor(freq / 40, dtype=torch.float32)


def run(rank, world, port, epochs):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    data = Spectra(161)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DDP(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += torch.tensor([loss.item() * len(x), len(x)])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: {total[0] / total[1]:.4f} over {int(total[1])} samples", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main(world=2, epochs=2):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(world, port, epochs), nprocs=world, start_method="fork")


if __name__ == "__main__":
    main()
