# cause: too-few-workers
"""Kelp growth regression from buoy telemetry."""
import math
import random
import time
from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GATEWAY_DELAY = 0.022


def poll_gateway(buoy, day, delay):
    """Wakes the modem of a buoy and returns its 24 hourly readings."""
    time.sleep(delay)
    rng = random.Random(buoy * 1009 + day)
    phase = rng.random()
    return [(12 + 4 * math.sin(h / 24 * math.tau + phase) + rng.gauss(0, 0.3), rng.random()) for h in range(24)]


class BuoyDays(Dataset):
    def __init__(self, buoys, days, fetch):
        self.pairs = [(b, d) for b in range(buoys) for d in range(days)]
        self.fetch = fetch

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        buoy, day = self.pairs[i]
        readings = torch.tensor(self.fetch(buoy, day))
        warm = readings[:, 0].mean()
        growth = 0.3 * (warm - 12) + readings[:, 1].mean()
        return readings, growth


class Early:
    def __init__(self, limit):
        self.limit, self.history = limit, []

    def reached(self, value):
        self.history.append(value)
        return value < self.limit


class GrowthModel(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn = nn.GRU(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = torch.stack([(x[..., 0] - 12) / 4, x[..., 1]], -1)
        return self.out(self.rnn(x)[0].mean(1)).squeeze(1)


def build_loader(buoys=16, days=20, batch=8, **kwargs):
    data = BuoyDays(buoys, days, partial(poll_gateway, delay=GATEWAY_DELAY))
    return DataLoader(data, batch, shuffle=True, num_workers=kwargs.pop("jobs", 1), **kwargs)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader = build_loader(persistent_workers=True)
    model, early = GrowthModel(), Early(1e-4)
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    for epoch in range(1):
        began, total = time.time(), 0.0
        for x, y in loader:
            loss = nn.functional.huber_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        mean = total / len(loader)
        print(f"epoch {epoch} huber {mean:.5f} in {time.time() - began:.1f}s", flush=True)
        if early.reached(mean):
            break


if __name__ == "__main__":
    main()
