# cause: iterable-not-sharded
"""Flood stage forecast from a rolling buffer of river gauge readings."""
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class Plan:
    gauges: int = 6
    hours: int = 700
    window: int = 48
    lead: int = 6
    batch: int = 18
    epochs: int = 2
    workers: int = 2
    patience: int = 3


class Telemetry:
    """Plays back the archive of the gauge network, hour by hour."""

    def __init__(self, plan, seed=3):
        self.plan = plan
        rng = np.random.default_rng(seed)
        rain = rng.gamma(0.3, 4.0, plan.hours)
        level = np.zeros((plan.hours, plan.gauges))
        for t in range(1, plan.hours):
            level[t] = 0.93 * level[t - 1] + rain[max(0, t - 3)] * np.linspace(0.3, 1.0, plan.gauges) + rng.normal(0, 0.05, plan.gauges)
        self.level = level.astype(np.float32)

    def replay(self):
        for t in range(self.plan.hours):
            time.sleep(0.001)
            yield t, self.level[t]


def features(window):
    w = np.asarray(window)
    slope = np.gradient(w, axis=0)
    return np.concatenate([w, slope, np.maximum.accumulate(w, 0)], axis=1)


class Rolling(IterableDataset):
    def __init__(self, source, plan):
        super().__init__()
        self.source, self.plan = source, plan

    def __iter__(self):
        past = deque(maxlen=self.plan.window + self.plan.lead)
        for t, reading in self.source.replay():
            past.append(reading)
            if len(past) < past.maxlen:
                continue
            rows = list(past)
            x = features(rows[:self.plan.window])
            yield {"x": torch.from_numpy(x), "y": torch.from_numpy(rows[-1]), "hour": t % 24}


class Forecaster(nn.Module):
    def __init__(self, plan, hidden=128):
        super().__init__()
        self.rnn = nn.LSTM(plan.gauges * 3, hidden, batch_first=True)
        self.clock = nn.Embedding(24, 8)
        self.out = nn.Linear(hidden + 8, plan.gauges)

    def forward(self, b):
        h = self.rnn(b["x"])[1][0][-1]
        return self.out(torch.cat([h, self.clock(b["hour"])], 1))


class Monitor:
    def __init__(self):
        self.sum = self.n = 0

    def add(self, value, k):
        self.sum += value * k
        self.n += k

    @property
    def mean(self):
        return self.sum / max(self.n, 1)


def run(plan):
    torch.manual_seed(10)
    torch.set_num_threads(1)
    loader = DataLoader(Rolling(Telemetry(plan), plan), batch_size=plan.batch, num_workers=plan.workers,
                        persistent_workers=plan.workers > 0, drop_last=True)
    model = Forecaster(plan)
    opt = torch.optim.RMSprop(model.parameters(), 1e-3)
    best, waited = float("inf"), 0
    for epoch in range(plan.epochs):
        m = Monitor()
        for b in loader:
            loss = nn.functional.huber_loss(model(b), b["y"])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            m.add(loss.item(), len(b["y"]))
        print(f"epoch {epoch} huber {m.mean:.4f} ({m.n} windows)", flush=True)
        best, waited = (m.mean, 0) if m.mean < best else (best, waited + 1)
        if waited >= plan.patience:
            break


if __name__ == "__main__":
    run(Plan())
