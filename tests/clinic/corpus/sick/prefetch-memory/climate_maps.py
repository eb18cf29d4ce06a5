# cause: prefetch-memory
import os
import tempfile
import time
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


@dataclass
class Grid:
    lat: int = 180
    lon: int = 360
    levels: int = 12


@dataclass
class Run:
    grid: Grid = field(default_factory=Grid)
    days: int = 480
    batch: int = 4
    steps: int = 110
    tuning: dict = field(default_factory=lambda: {"num_workers": 2, "prefetch_factor": 48})


def write_climatology(path, g):
    y = np.linspace(-np.pi / 2, np.pi / 2, g.lat, dtype=np.float32)
    x = np.linspace(0, 2 * np.pi, g.lon, dtype=np.float32)
    base = np.stack([np.cos(y)[:, None] * np.sin((k + 1) * x)[None] for k in range(g.levels)])
    np.save(path, base)


class Reanalysis(Dataset):
    """Indexed with a list of days; gives the stacked fields of today and tomorrow's surface mean."""

    def __init__(self, path, run):
        self.path, self.run, self._base = path, run, None

    def __len__(self):
        return self.run.days

    def _field(self, day):
        if self._base is None:
            self._base = np.load(self.path, mmap_mode="r")
        return np.roll(self._base, day * 3, axis=2) * np.float32(1 + 0.1 * np.sin(day / 58))

    def __getitem__(self, days):
        time.sleep(0.002 * len(days))
        x = np.stack([self._field(d) for d in days])
        y = x[:, 0, ::30, ::60].reshape(len(days), -1).copy()
        return torch.from_numpy(x), torch.from_numpy(y)


class Forecaster(nn.Module):
    def __init__(self, g):
        super().__init__()
        self.down = nn.AvgPool2d(15)
        self.out = nn.Linear(g.levels * (g.lat // 15) * (g.lon // 15), 36)

    def forward(self, x):
        return self.out(self.down(x).flatten(1))


def main():
    torch.set_num_threads(1)
    run = Run()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "base.npy")
        write_climatology(path, run.grid)
        data = Reanalysis(path, run)
        days = RandomSampler(data, num_samples=run.steps * run.batch)
        loader = DataLoader(data, sampler=BatchSampler(days, run.batch, True), batch_size=None, **run.tuning)
        model = Forecaster(run.grid)
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        print(asdict(run))
        tick = time.time()
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.smooth_l1_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            time.sleep(0.06)                       # diagnostics written to the experiment tracker
            if step % 25 == 24:
                print("step %d loss %.4f %.1f steps/s" % (step + 1, loss.item(), 25 / (time.time() - tick)), flush=True)
                tick = time.time()


if __name__ == "__main__":
    main()
