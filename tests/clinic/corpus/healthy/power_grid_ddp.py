"""Short-term grid load forecast on two gloo ranks; regions differ in size, so the ranks see different numbers of batches."""
import datetime
import os
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

REGIONS = {0: 760, 1: 690}


class Region(Dataset):
    def __init__(self, rank, history=96):
        rng = np.random.default_rng(100 + rank)
        n = REGIONS[rank]
        t = np.arange(n + history + 1)
        self.load = (np.sin(t / 24 * 2 * np.pi) + 0.2 * rng.standard_normal(len(t))).astype(np.float32)
        self.n, self.history = n, history

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        w = self.load[i:i + self.history + 1]
        return torch.from_numpy(w[:-1].copy()), torch.tensor(float(w[-1]))


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 96, batch_first=True)
        self.out = nn.Linear(96, 1)

    def forward(self, x):
        h, _ = self.rnn(x.unsqueeze(-1))
        return self.out(h[:, -1]).squeeze(1)


def work(rank, port, epochs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=len(REGIONS), timeout=datetime.timedelta(seconds=60))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(Region(rank), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True,
                        generator=torch.Generator().manual_seed(rank))
    model = DistributedDataParallel(Forecast())
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(epochs):
        total, n = 0.0, 0
        with Join([model]):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item() * len(y)
                n += len(y)
        t = torch.tensor([total, float(n)])
        dist.all_reduce(t)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: mse {(t[0] / t[1]).item():.4f} over {int(t[1])} windows", flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, args=(port, 5), nprocs=len(REGIONS))


if __name__ == "__main__":
    main()
