"""Bus arrival delay model, fed from a stream of trip files."""
import csv
import os
import random
import tempfile
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass
class Conf:
    files: int = 12
    trips: int = 80
    stops: int = 30
    batch: int = 20
    epochs: int = 2
    workers: int = 2
    buffer: int = 64


def timetable(folder, c):
    r = random.Random(1)
    for k in range(c.files):
        with open(os.path.join(folder, f"route{k:02d}.csv"), "w", newline="") as f:
            w = csv.writer(f)
            for trip in range(c.trips):
                delay, row = r.uniform(0, 4), []
                for s in range(c.stops + 1):
                    delay += r.gauss(0.1, 0.5) + (0.6 if 7 <= trip % 24 <= 9 else 0)
                    row.append(f"{delay:.4f}")
                w.writerow([k, trip % 24] + row)


class Trips(IterableDataset):
    def __init__(self, folder, c):
        self.paths = [os.path.join(folder, n) for n in sorted(os.listdir(folder))]
        self.c = c

    def __len__(self):
        return self.c.files * self.c.trips

    def mine(self):
        info = get_worker_info()
        if info is None:
            return list(self.paths), random.Random(torch.initial_seed())
        return self.paths[info.id::info.num_workers], random.Random(info.seed)

    @staticmethod
    def parse(row):
        time.sleep(0.003)
        values = torch.tensor([float(v) for v in row[2:]])
        return {"route": int(row[0]), "hour": int(row[1]), "past": values[:-1].clone(), "next": values[-1].clone()}

    def read(self, paths):
        for path in paths:
            with open(path, newline="") as f:
                for row in csv.reader(f):
                    yield self.parse(row)

    def __iter__(self):
        paths, dice = self.mine()
        dice.shuffle(paths)
        held = []
        for item in self.read(paths):
            held.append(item)
            if len(held) >= self.c.buffer:
                yield held.pop(dice.randrange(len(held)))
        dice.shuffle(held)
        yield from held


class Delay(nn.Module):
    def __init__(self, c, dim=96):
        super().__init__()
        self.route, self.hour = nn.Embedding(c.files, 8), nn.Embedding(24, 8)
        self.rnn = nn.GRU(1, dim, 2, batch_first=True)
        self.out = nn.Linear(dim + 16, 1)

    def forward(self, b):
        h = self.rnn(b["past"][..., None])[1][-1]
        return self.out(torch.cat([h, self.route(b["route"]), self.hour(b["hour"])], 1)).squeeze(1)


def train(c, folder):
    loader = DataLoader(Trips(folder, c), c.batch, num_workers=c.workers, persistent_workers=True)
    model = Delay(c)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=c.epochs * len(loader))
    for epoch in range(c.epochs):
        seen, total = 0, 0.0
        for b in loader:
            loss = nn.functional.smooth_l1_loss(model(b), b["next"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            seen += len(b["next"])
            total += loss.item() * len(b["next"])
        print(f"epoch {epoch}: {seen} trips, loss {total / seen:.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    conf = Conf()
    with tempfile.TemporaryDirectory(prefix="bus_") as folder:
        timetable(folder, conf)
        train(conf, folder)
