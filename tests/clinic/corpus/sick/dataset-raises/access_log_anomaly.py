# cause: dataset-raises
"""Autoencoder on web access logs; shards of JSON lines are streamed by the workers."""
import gzip
import json
import os
import random
import tempfile
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

METHODS = ["GET", "POST", "PUT", "DELETE"]


@dataclass
class Config:
    shards: int = 6
    lines: int = 4000
    batch: int = 128
    epochs: int = 3
    hidden: int = 48
    methods: list = field(default_factory=lambda: list(METHODS))


def write_shards(folder, cfg):
    rnd = random.Random(0)
    paths = []
    for s in range(cfg.shards):
        path = os.path.join(folder, f"access-{s:02d}.jsonl.gz")
        with gzip.open(path, "wt", compresslevel=1) as f:
            for n in range(cfg.lines):
                rec = {"method": rnd.choice(cfg.methods), "status": rnd.choice([200, 200, 200, 301, 404, 500]),
                       "bytes": rnd.randrange(1, 1 << 20), "path": "/" + "/".join(rnd.choices("abcdefgh", k=rnd.randint(1, 6))),
                       "ms": rnd.random() * 900}
                if s == 3 and n == 1717:
                    rec["ms"] = None        # upstream closed the connection
                f.write(json.dumps(rec) + "\n")
        paths.append(path)
    return paths


class Featuriser:
    def __init__(self, methods):
        self.methods = {m: i for i, m in enumerate(methods)}

    def latency(self, rec):
        return float(rec["ms"]) / 1000.0

    def path_histogram(self, path):
        h = [0.0] * 26
        for ch in path:
            if ch.isalpha():
                h[ord(ch) - 97] += 1.0
        return h

    def __call__(self, rec):
        v = [0.0] * len(self.methods)
        v[self.methods[rec["method"]]] = 1.0
        v += [rec["status"] / 600.0, rec["bytes"] / (1 << 20), self.latency(rec)]
        return torch.tensor(v + self.path_histogram(rec["path"]))


class ShardStream(IterableDataset):
    def __init__(self, paths, featuriser):
        self.paths, self.featuriser = paths, featuriser

    def _mine(self):
        info = get_worker_info()
        return self.paths if info is None else self.paths[info.id::info.num_workers]

    def records(self):
        for p in self._mine():
            with gzip.open(p, "rt") as f:
                for line in f:
                    yield json.loads(line)

    def __iter__(self):
        for rec in self.records():
            yield self.featuriser(rec)


class Trainer:
    def __init__(self, cfg, width):
        self.cfg = cfg
        self.model = nn.Sequential(nn.Linear(width, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, 8),
                                   nn.ReLU(), nn.Linear(8, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, width))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 1, 0.7)

    def fit(self, loader):
        for epoch in range(self.cfg.epochs):
            running = 0.0
            for step, x in enumerate(loader, 1):
                loss = nn.functional.mse_loss(self.model(x), x)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                running += loss.item()
                if step % 40 == 0:
                    print(f"[{epoch}:{step}] mse={running / step:.5f}", flush=True)
            self.sched.step()


def main():
    cfg = Config()
    with tempfile.TemporaryDirectory() as folder:
        paths = write_shards(folder, cfg)
        stream = ShardStream(paths, Featuriser(cfg.methods))
        loader = DataLoader(stream, batch_size=cfg.batch, num_workers=2, persistent_workers=True)
        Trainer(cfg, len(cfg.methods) + 3 + 26).fit(loader)


if __name__ == "__main__":
    main()
