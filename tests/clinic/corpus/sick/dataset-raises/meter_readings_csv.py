# cause: dataset-raises
"""Hourly gas consumption from exported meter readings (CSV)."""
import csv
import math
import random
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class MeterConfig:
    csv_path: Path
    rows: int = 5000
    batch_size: int = 64
    width: int = 512
    epochs: int = 5
    num_workers: int = 2
    lr: float = 1e-3


def export_readings(path, rows):
    rnd = random.Random(31)
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["timestamp", "meter", "outdoor_c", "m3"])
        at = datetime(2023, 1, 1, 0, 7, 12)
        for _ in range(rows):
            at += timedelta(seconds=rnd.randint(1500, 5400))
            temp = 8 - 10 * math.cos(2 * math.pi * at.timetuple().tm_yday / 365) + rnd.gauss(0, 2)
            use = max(0.0, 2.5 - 0.12 * temp) * (1.3 if 6 <= at.hour < 22 else 0.7) + rnd.gauss(0, 0.05)
            stamp = at.isoformat(sep=" ", timespec="auto") if rnd.random() < 0.998 else at.isoformat(sep=" ", timespec="minutes")
            out.writerow([stamp, rnd.randint(1, 40), f"{temp:.2f}", f"{use:.4f}"])


class CalendarFeatures:
    layout = "%Y-%m-%d %H:%M:%S"

    def __call__(self, stamp):
        at = datetime.strptime(stamp, self.layout)
        hour = 2 * math.pi * (at.hour + at.minute / 60) / 24
        day = 2 * math.pi * at.timetuple().tm_yday / 365
        return [math.sin(hour), math.cos(hour), math.sin(day), math.cos(day), float(at.weekday() >= 5)]


class MeterReadings(Dataset):
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = list(csv.DictReader(f))
        self.calendar = CalendarFeatures()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        x = self.calendar(row["timestamp"]) + [float(row["outdoor_c"]) / 10]
        return torch.tensor(x), int(row["meter"]), torch.tensor(float(row["m3"]))


class ConsumptionNet(nn.Module):
    def __init__(self, width, meters=41):
        super().__init__()
        self.meter = nn.Embedding(meters, 16)
        self.mlp = nn.Sequential(nn.Linear(6 + 16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, meter):
        return self.mlp(torch.cat([x, self.meter(meter)], dim=1)).squeeze(1)


class EarlyStopping:
    def __init__(self, patience=2):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def update(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad > self.patience


class ConsumptionTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        export_readings(cfg.csv_path, cfg.rows)
        readings = MeterReadings(cfg.csv_path)
        train, val = random_split(readings, [0.8, 0.2])
        options = dict(batch_size=cfg.batch_size, num_workers=cfg.num_workers)
        self.train_loader = DataLoader(train, shuffle=True, persistent_workers=True, **options)
        self.val_loader = DataLoader(val, persistent_workers=True, **options)
        self.net = ConsumptionNet(cfg.width)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr)
        self.stopper = EarlyStopping()

    def _pass(self, loader, train):
        self.net.train(train)
        losses = []
        for x, meter, y in loader:
            loss = nn.functional.huber_loss(self.net(x, meter), y)
            if train:
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            train = self._pass(self.train_loader, True)
            with torch.no_grad():
                val = self._pass(self.val_loader, False)
            print(f"epoch {epoch} train {train:.4f} val {val:.4f}", flush=True)
            if self.stopper.update(val):
                break


def main():
    torch.manual_seed(13)
    with tempfile.TemporaryDirectory() as folder:
        ConsumptionTrainer(MeterConfig(Path(folder) / "readings.csv")).fit()


if __name__ == "__main__":
    main()
