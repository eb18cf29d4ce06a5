"""Crop yield from field time series; the stream is split among the workers."""
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass
class Setup:
    fields: int = 640
    days: int = 180
    batch: int = 8
    workers: int = 2
    epochs: int = 2


class FieldStream(IterableDataset):
    def __init__(self, s):
        self.s = s

    def __len__(self):
        return self.s.fields

    def _field(self, k):
        rng = np.random.default_rng(k)
        t = np.arange(self.s.days)
        rain = rng.gamma(0.4, 6, self.s.days)
        temp = 14 + 9 * np.sin(2 * math.pi * (t - 100) / 365) + rng.normal(0, 2, self.s.days)
        time.sleep(0.002)                           # satellite cut-out
        soil, track = 40.0, []
        for r, c in zip(rain.tolist(), temp.tolist()):
            soil = min(100.0, max(0.0, soil + r - 0.25 * max(c, 0.0)))
            track.append(soil)
        x = np.stack([rain / 10, temp / 20, np.asarray(track) / 100], 1).astype(np.float32)
        return torch.from_numpy(x), torch.tensor(float(np.mean(track)) / 100)

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for k in range(first, self.s.fields, step):
            yield self._field(k)


class YieldNet(nn.Module):
    def __init__(self, days):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * days, 1280), nn.ReLU(), nn.Linear(1280, 1024), nn.ReLU(), nn.Linear(1024, 1), nn.Flatten(0))

    def forward(self, x):
        return self.net(x)


def main():
    s = Setup()
    torch.set_num_threads(1)
    loader = DataLoader(FieldStream(s), s.batch, num_workers=s.workers, persistent_workers=True)
    model = YieldNet(s.days)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for epoch in range(s.epochs):
        seen, total = 0, 0.0
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen, total = seen + len(y), total + loss.item() * len(y)
        print("epoch %d fields %d loss %.5f" % (epoch, seen, total / seen), flush=True)


if __name__ == "__main__":
    main()
