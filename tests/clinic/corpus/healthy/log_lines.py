"""Log anomaly model over compressed files; every loader process takes its share of the files."""
import glob
import gzip
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def write_logs(folder, files, lines):
    r = random.Random(0)
    for k in range(files):
        with gzip.open(os.path.join(folder, f"app.{k}.log.gz"), "wt", compresslevel=1) as f:
            for i in range(lines):
                level = r.choice(["INFO", "WARN", "ERROR"])
                f.write(f"{level} [{k}:{i}] request {r.randrange(10 ** 6)} took {r.random():.3f}s " + "x" * r.randrange(150) + "\n")


class LogLines(IterableDataset):
    LEVELS = {"INFO": 0, "WARN": 1, "ERROR": 2}

    def __init__(self, pattern, width=192):
        self.pattern, self.width = pattern, width

    def files(self):
        every = sorted(glob.glob(self.pattern))
        info = get_worker_info()
        if info is not None:
            every = every[info.id::info.num_workers]
        random.shuffle(every)
        return every

    def features(self, line):
        counts = torch.zeros(self.width)
        for n in (1, 2, 3, 4):
            for a in range(len(line) - n + 1):
                h = 0
                for c in line[a:a + n]:
                    h = (h * 61 + ord(c)) % 65521
                counts[h % self.width] += 1
        return counts.log1p()

    def __iter__(self):
        for path in self.files():
            with gzip.open(path, "rt") as f:
                for line in f:
                    level, rest = line.rstrip("\n").split(" ", 1)
                    yield self.features(rest), self.LEVELS[level]


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, 1280), nn.ReLU(), nn.Linear(1280, 3))

    def forward(self, x):
        return self.net(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_logs(folder, files=8, lines=12)
        data = LogLines(os.path.join(folder, "*.gz"))
        loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
        model = Model(data.width)
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(2):
            seen = 0
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                seen += len(y)
            print(f"epoch {epoch}: {seen} lines, loss {loss.item():.3f}", flush=True)
