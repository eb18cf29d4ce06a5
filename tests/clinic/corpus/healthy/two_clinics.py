"""Two clinics train one model together; the larger one leaves out some scans of its own, drawn anew in every epoch."""
import argparse
import datetime
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, RandomSampler

CLINICS = {"east": 150, "west": 118}


def make_clinic(folder: Path, count: int, seed: int):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for k in range(count):
        label = int(rng.random() < 0.5)
        scan = rng.normal(0.3 * label, 1, (24, 24, 24)).astype(np.float16)
        if rng.random() < 0.06:
            scan[:] = 0
        np.savez(folder / f"scan{k:04d}.npz", scan=scan, label=label)


class ClinicScans(Dataset):
    """ClinicScans of one clinic; empty ones (the scanner's calibration runs) are not listed."""

    def __init__(self, folder: Path):
        self.paths = [p for p in sorted(folder.glob("*.npz")) if np.load(p)["scan"].any()]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with np.load(self.paths[i]) as z:
            scan, label = z["scan"].astype(np.float32), int(z["label"])
        time.sleep(0.003)
        axis = int(torch.randint(3, ()))
        return torch.from_numpy(np.flip(scan, axis).copy()).unsqueeze(0), label


def network():
    return nn.Sequential(nn.Conv3d(1, 8, 5, 3), nn.ReLU(), nn.Conv3d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 5 ** 3, 2))


def clinic_main(rank, root, args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/meet", rank=rank, world_size=len(CLINICS), timeout=datetime.timedelta(seconds=args.patience))
    name = list(CLINICS)[rank]
    scans = ClinicScans(Path(root) / name)
    common = torch.tensor(len(scans))
    dist.all_reduce(common, dist.ReduceOp.MIN)
    loader = DataLoader(scans, args.batch, sampler=RandomSampler(scans, num_samples=int(common)), num_workers=1, persistent_workers=True)
    net = network()
    net = DistributedDataParallel(net)
    opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        stats = torch.tensor([total, len(loader)])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: loss {stats[0] / stats[1]:.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        torch.save(net.module.state_dict(), os.path.join(root, "final.pt"))
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--patience", type=int, default=60, help="seconds a clinic waits for the other")
    args = ap.parse_args()
    root = tempfile.mkdtemp()
    try:
        for k, (name, count) in enumerate(CLINICS.items()):
            make_clinic(Path(root) / name, count, k)
        mp.start_processes(clinic_main, (root, args), nprocs=len(CLINICS), start_method="fork")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
