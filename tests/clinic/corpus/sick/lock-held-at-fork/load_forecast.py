# cause: lock-held-at-fork
import argparse
import contextlib
import functools
import pathlib
import shutil
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class RunningMoments:
    def __init__(self):
        self.cond = threading.Condition(threading.Lock())
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def update(self, x):
        with self.cond:
            n = x.size
            delta = float(x.mean()) - self.mean
            total = self.count + n
            self.mean += delta * n / total
            self.m2 += float(x.var()) * n + delta ** 2 * self.count * n / total
            self.count = total
            self.cond.notify_all()

    @property
    def std(self):
        return (self.m2 / max(self.count, 1)) ** 0.5 or 1.0

    def write(self, path):
        with self.cond:
            text = f"{self.count},{self.mean},{self.std}\n"
            for chunk in text.split(","):
                with open(path, "a") as f:
                    f.write(chunk + " ")
                time.sleep(0.1)


@contextlib.contextmanager
def snapshots(moments, path, pause=4.0):
    done = threading.Event()

    def loop():
        while not done.is_set():
            moments.write(path)
            done.wait(pause)

    t = threading.Thread(target=loop, daemon=True)
    t.start()
    try:
        yield
    finally:
        done.set()
        t.join()


def standardise(window, moments, track):
    if track:
        moments.update(window)
    return (window - moments.mean) / moments.std


class MeterWindows(Dataset):
    def __init__(self, file, length, horizon, transform):
        self.series = np.load(file, mmap_mode="r")
        self.length, self.horizon, self.transform = length, horizon, transform

    def __len__(self):
        return (len(self.series) - self.length - self.horizon) // 6

    def __getitem__(self, i):
        s = i * 6
        w = np.array(self.series[s:s + self.length + self.horizon], dtype=np.float32)
        w = self.transform(w)
        time.sleep(0.002)
        return torch.from_numpy(w[:self.length].copy()), torch.from_numpy(w[self.length:].copy())


class Forecaster(nn.Module):
    def __init__(self, hidden, horizon):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):
        _, h = self.rnn(x.unsqueeze(-1))
        return self.head(h[-1])


def generate(folder, meters, hours):
    t = np.arange(hours)
    for m in range(meters):
        rng = np.random.default_rng(m)
        y = 10 + 3 * np.sin(2 * np.pi * t / 24 + m) + 1.5 * np.sin(2 * np.pi * t / 168) + rng.normal(0, 0.4, hours)
        np.save(folder / f"meter{m}.npy", y.astype(np.float32))
    return sorted(folder.glob("meter*.npy"))


def train(args, folder):
    files = generate(folder, args.meters, 1500)
    moments = RunningMoments()
    for f in files:
        moments.update(np.load(f)[:500])
    transform = functools.partial(standardise, moments=moments, track=True)
    data = ConcatDataset([MeterWindows(f, 96, 24, transform) for f in files])
    model = Forecaster(48, 24)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=args.jobs, drop_last=True)
    with snapshots(moments, folder / "moments.txt"):
        started = time.time()
        for n, (x, y) in enumerate(loader, 1):
            loss = nn.functional.smooth_l1_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if n % 8 == 0:
                print(f"{n}/{len(loader)} loss={loss.item():.4f} {time.time() - started:.1f}s", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--meters", type=int, default=4)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--jobs", type=int, default=2)
    args = ap.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="meters"))
    try:
        train(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
