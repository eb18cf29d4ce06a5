# cause: uneven-ranks
"""Data-parallel regression on two local processes; every process reads the files of its own site."""
import glob
import os
import shutil
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WORLD = 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SiteFiles(Dataset):
    def __init__(self, folder):
        self.files = sorted(glob.glob(os.path.join(folder, "*.npz")))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as z:
            x, y = z["x"], z["y"]
        x = np.log1p(np.abs(np.fft.rfft(x)))
        return torch.from_numpy(x.astype(np.float32)), torch.tensor(float(y))


def collect(root):
    rs = np.random.RandomState(0)
    for site, count in (("north", 208), ("south", 176)):
        folder = os.path.join(root, site)
        os.makedirs(folder)
        for i in range(count):
            x = rs.normal(size=254)
            np.savez_compressed(os.path.join(folder, f"{i:04d}.npz"), x=x, y=np.float32((x ** 2).mean()))
    return [os.path.join(root, s) for s in ("north", "south")]


def worker(rank, port, folders, epochs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(rank)
    data = SiteFiles(folders[rank])
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        running = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        print(f"[rank {rank}] epoch {epoch}: {running / len(loader):.4f}", flush=True)
        score = torch.tensor([running / len(loader)], dtype=torch.float64)
        gathered = [torch.zeros_like(score) for _ in range(WORLD)]
        dist.all_gather(gathered, score)
        if rank == 0:
            print("mean over sites", torch.stack(gathered).mean().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    root = tempfile.mkdtemp()
    try:
        folders = collect(root)
        mp.start_processes(worker, args=(free_port(), folders, 2), nprocs=WORLD, start_method="fork")
    finally:
        shutil.rmtree(root, ignore_errors=True)
