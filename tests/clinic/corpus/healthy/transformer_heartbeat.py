"""Time-series forecaster with a heartbeat thread that reports progress; shared counters behind one lock."""
import os
import threading
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

_stats_lock = threading.Lock()
_stats = {"samples": 0, "steps": 0}

# whoever forks takes the lock first, so the child gets it free
os.register_at_fork(before=_stats_lock.acquire, after_in_parent=_stats_lock.release, after_in_child=_stats_lock.release)


def count(key, n=1):
    with _stats_lock:
        _stats[key] += n
        return _stats[key]


class Heartbeat(threading.Thread):
    def __init__(self, every=0.02):
        super().__init__(daemon=True)
        self.every, self.done = every, threading.Event()
        self.last = 0

    def run(self):
        while not self.done.wait(self.every):
            with _stats_lock:
                snapshot = dict(_stats)
                time.sleep(0.005)                   # writing the line takes a moment
            if snapshot["steps"] >= self.last + 20:
                self.last = snapshot["steps"]
                print("heartbeat", snapshot["steps"], "steps", flush=True)


class Loads(Dataset):
    """Windows of a synthetic electricity load curve."""

    def __init__(self, hours=9000, window=96, horizon=24):
        t = np.arange(hours)
        g = np.random.default_rng(0)
        self.curve = (np.sin(t / 24 * 2 * np.pi) + 0.4 * np.sin(t / 168 * 2 * np.pi) + g.normal(0, 0.1, hours)).astype(np.float32)
        self.window, self.horizon = window, horizon
        self.starts = np.arange(0, hours - window - horizon, 4)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        count("samples")
        s = self.starts[i]
        w = self.curve[s:s + self.window]
        y = self.curve[s + self.window:s + self.window + self.horizon]
        lags = np.stack([w, np.roll(w, 1), np.roll(w, 24), np.gradient(w)], -1).astype(np.float32)
        return torch.from_numpy(lags), torch.from_numpy(y.copy())


class Forecaster(nn.Module):
    def __init__(self, d=96, horizon=24):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 2 * d, batch_first=True, dropout=0.1), 2)
        self.out = nn.Linear(d, horizon)

    def forward(self, x):
        return self.out(self.enc(self.inp(x)).mean(1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    beat = Heartbeat()
    beat.start()
    loader = DataLoader(Loads(), batch_size=48, shuffle=True, num_workers=2, persistent_workers=True)
    net = Forecaster()
    opt = torch.optim.Adam(net.parameters(), 5e-4)
    for epoch in range(3):
        begin = t = time.time()
        wait = 0.0
        for x, y in loader:
            wait += time.time() - t
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            count("steps")
            t = time.time()
        print(f"epoch {epoch} mse {loss.item():.4f} {t - begin:.1f}s data {wait:.2f}s", flush=True)
    beat.done.set()
    beat.join()


if __name__ == "__main__":
    main()
