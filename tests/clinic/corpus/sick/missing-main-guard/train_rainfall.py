# cause: missing-main-guard
"""Quantile regression of rainfall from station reports."""
import argparse
import datetime as dt
import re

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

REPORT = re.compile(r"(?P<station>\d{5}) (?P<day>\d{4}-\d\d-\d\d) T(?P<t>-?\d+\.\d) H(?P<h>\d+) P(?P<p>\d+\.\d)")


def reports(n, seed):
    rng = np.random.default_rng(seed)
    first = dt.date(2020, 1, 1)
    for _ in range(n):
        day = first + dt.timedelta(days=int(rng.integers(900)))
        temp = 10 - 9 * np.cos(day.timetuple().tm_yday / 58) + rng.normal(0, 3)
        hum = int(np.clip(rng.normal(70, 15), 5, 100))
        rain = max(0.0, (hum - 60) / 8 + rng.normal(0, 1))
        yield f"{rng.integers(10000, 10040):05d} {day} T{temp:.1f} H{hum} P{rain:.1f}"


class Stations(Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        m = REPORT.fullmatch(self.lines[i])
        day = dt.date.fromisoformat(m["day"]).timetuple().tm_yday
        x = [float(m["t"]) / 20, int(m["h"]) / 100, np.sin(day / 58.1), np.cos(day / 58.1)]
        return int(m["station"]) - 10000, torch.tensor(x, dtype=torch.float32), np.float32(m["p"])


class Quantiles(nn.Module):
    LEVELS = (0.1, 0.5, 0.9)

    def __init__(self):
        super().__init__()
        self.station = nn.Embedding(40, 6)
        self.net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, len(self.LEVELS)))

    def forward(self, s, x):
        return self.net(torch.cat([self.station(s), x], 1))

    def loss(self, pred, y):
        q = torch.tensor(self.LEVELS)
        e = y[:, None] - pred
        return torch.maximum(q * e, (q - 1) * e).mean()


class Experiment:
    def __init__(self, args):
        self.args = args
        self.model = Quantiles()
        self.opt = torch.optim.Adam(self.model.parameters(), args.lr)
        self.loader = DataLoader(Stations(list(reports(args.n, 0))), args.batch, shuffle=True,
                                 num_workers=args.workers, multiprocessing_context=args.context)

    def run(self):
        for epoch in range(self.args.epochs):
            total = 0.0
            for s, x, y in self.loader:
                loss = self.model.loss(self.model(s, x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            print(f"epoch {epoch} pinball {total / len(self.loader):.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=2000)
    ap.add_argument("--batch", type=int, default=50)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--context", default="forkserver")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-3)
    Experiment(ap.parse_args()).run()


main()
