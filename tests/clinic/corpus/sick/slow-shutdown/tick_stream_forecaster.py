# cause: slow-shutdown
"""Short-horizon forecaster trained on the tick recorder's spool directory.

The recorder drops one .npy per minute and instrument group; we follow the spool like `tail -f`
and stop each pass after a fixed number of optimiser steps.
"""
import argparse
import logging
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("forecaster")


class Spool:
    def __init__(self, root):
        self.root = pathlib.Path(root)

    def seed(self, n_files=16, rows=1024, width=24):
        rng = np.random.default_rng(3)
        for k in range(n_files):
            ticks = np.cumsum(rng.normal(size=(rows, width)), axis=0).astype(np.float32)
            np.save(self.root / f"ticks_{k:05d}.npy", ticks)
        return self

    def listing(self):
        return sorted(self.root.glob("ticks_*.npy"))


class FollowTicks(IterableDataset):
    """Windows over every file of the spool; new files are picked up as the recorder writes them."""

    def __init__(self, spool, window=32, idle_limit=90.0, poll=1.0):
        self.spool, self.window = spool, window
        self.idle_limit, self.poll = idle_limit, poll

    def _mine(self, path):
        info = get_worker_info()
        if info is None:
            return True
        return int(path.stem.split("_")[1]) % info.num_workers == info.id

    def _files(self):
        done, idle = set(), 0.0
        while idle < self.idle_limit:
            fresh = [p for p in self.spool.listing() if p.name not in done and self._mine(p)]
            if not fresh:
                time.sleep(self.poll)
                idle += self.poll
                continue
            idle = 0.0
            for path in fresh:
                done.add(path.name)
                yield path

    def __iter__(self):
        for path in self._files():
            ticks = np.load(path)
            ticks = (ticks - ticks.mean(0)) / (ticks.std(0) + 1e-6)
            for s in range(0, len(ticks) - self.window, self.window // 2):
                chunk = torch.from_numpy(ticks[s:s + self.window].copy())
                yield chunk[:-1], chunk[-1]


class Forecaster(nn.Module):
    def __init__(self, width, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, width)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1])


class Trainer:
    def __init__(self, args, spool):
        self.args = args
        self.loader = DataLoader(FollowTicks(spool), batch_size=args.batch_size, num_workers=2, drop_last=True)
        self.model = Forecaster(24)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.step = 0

    def one_pass(self):
        losses = []
        for x, y in self.loader:
            loss = nn.functional.huber_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            losses.append(loss.item())
            if len(losses) >= self.args.steps_per_pass:
                break
        return float(np.mean(losses))

    def fit(self):
        for k in range(self.args.passes):
            t0 = time.monotonic()
            mean = self.one_pass()
            log.info("pass %d  steps %d  loss %.4f  (%.1f s)", k, self.step, mean, time.monotonic() - t0)
            torch.save(self.model.state_dict(), pathlib.Path(self.args.out) / "last.pt")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--passes", type=int, default=4)
    ap.add_argument("--steps-per-pass", type=int, default=60)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--out", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory() as root:
        args.out = args.out or root
        Trainer(args, Spool(root).seed()).fit()


if __name__ == "__main__":
    main()
