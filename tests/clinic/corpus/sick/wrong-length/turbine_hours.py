# cause: wrong-length
"""Output of a wind turbine from the last hours of its sensors. One memory-mapped table per month of operation."""
import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

HOURS = [260, 700, 672, 690]  # commissioned in the middle of the first month
SENSORS, SPAN = 6, 24


def log_months(folder: Path):
    rng = np.random.default_rng(44)
    for m, hours in enumerate(HOURS):
        wind = np.abs(np.cumsum(rng.normal(0, 0.6, hours)) % 24 - 12)
        table = np.stack([wind, *rng.normal(0, 1, (SENSORS - 1, hours))], 1).astype(np.float32)
        power = (np.clip(wind, 3, 11) - 3) ** 2 / 64
        np.save(folder / f"month{m:02d}.npy", np.concatenate([table, power[:, None]], 1).astype(np.float32))


class Month:
    def __init__(self, path: Path):
        self.table = np.load(path, mmap_mode="r")

    @property
    def windows(self):
        return len(self.table) - SPAN

    def window(self, k):
        part = np.array(self.table[k:k + SPAN + 1])
        return part[:-1, :SENSORS], part[-1, SENSORS]


class Operation(Dataset):
    """All months behind one another."""

    def __init__(self, folder: Path, stride=4):
        self.months = [Month(p) for p in sorted(folder.glob("month*.npy"))]
        self.stride = stride
        self.per_month = self.months[0].windows // stride
        self.ends = np.cumsum([m.windows // stride for m in self.months])

    def __len__(self):
        return self.per_month * len(self.months)

    def locate(self, i):
        m = int(np.searchsorted(self.ends, i, side="right"))
        return self.months[m], int(i - (self.ends[m - 1] if m else 0)) * self.stride

    def __getitem__(self, i):
        month, k = self.locate(i)
        x, y = month.window(k)
        time.sleep(0.003)
        trend = np.polyfit(np.arange(SPAN), x, 1)[0]
        return torch.from_numpy(np.concatenate([x.ravel(), trend]).astype(np.float32)), torch.tensor(float(y))


class Shuffled(Sampler):
    def __init__(self, data, seed):
        self.data, self.seed, self.epoch = data, seed, 0

    def __len__(self):
        return len(self.data)

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        self.epoch += 1
        return iter(torch.randperm(len(self.data), generator=g).tolist())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        log_months(Path(tmp))
        data = Operation(Path(tmp))
        loader = DataLoader(data, args.batch, sampler=Shuffled(data, args.seed), num_workers=2, persistent_workers=True)
        model = nn.Sequential(nn.Linear(SENSORS * (SPAN + 1), 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=args.epochs * len(loader))
        for epoch in range(args.epochs):
            losses = []
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x).squeeze(1), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                losses.append(loss.item())
            print(f"epoch {epoch}: mse {np.mean(losses):.4f} lr {sched.get_last_lr()[0]:.5f}", flush=True)


if __name__ == "__main__":
    main()
